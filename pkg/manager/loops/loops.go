// Package loops puts the manager's control loops together: the caches that all
// of them read, and what one of them notifies another of. That is only
// that something has changed; what, each sees for itself.
package loops

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/accesspoints"
	"gnuthought.com/efs-stunnel/pkg/manager/binding"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/claims"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/jobs"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/manager/sharedvolumes"
	"gnuthought.com/efs-stunnel/pkg/manager/table"
	"gnuthought.com/efs-stunnel/pkg/manager/usage"
	"gnuthought.com/efs-stunnel/pkg/manager/workers"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Settings holds an administrator's choices.
type Settings struct {
	decide.Settings // their Cluster is ClusterUID's

	PollingInterval time.Duration
	Range           ports.Range
	Filter          efs.Filter
	VPCID           string // where the nodes are; "" when unknown

	Jobs  mountjobs.Settings // the same for every mount Job; their namespace is the manager's
	Batch int                // operations in one batch of a Job at most
	// UsageInterval is the time between two surveys of what volumes use; 0 is never, unless one is requested.
	UsageInterval     time.Duration
	Servers           bool     // Services of the manager's namespace name NFS servers
	FinishBinding     bool     // claims are bound whose volumes the cluster's binder is late for
	SharedVolumePaths []string // the namespaces whose SharedVolumes may name a path
}

// Options are the settings, and what the loops run with.
type Options struct {
	Settings
	DNSSuffix string // of file systems' names in certificates
	Leader    string // the name of this replica, for people

	// Workers has the leader's address for workers, and the client that checks their tokens. Without a host, no worker
	// waits for operations.
	Workers    workers.Options
	SweepDelay time.Duration // how long trash waits for more before it is swept; 0 is the default
	// SharedVolumeInterval is the time between two checks whether SharedVolumes are installed; 0 is
	// the default.
	SharedVolumeInterval time.Duration
	// Now is the apiserver's time: the loops compare it with times in objects. nil is time.Now.
	Now func() time.Time
	// ClockWrong returns what is wrong with this machine's clock, "" for nothing; nil if that is not known.
	ClockWrong func() string

	JobsClient    kubernetes.Interface // the client of mount Jobs; nil is that of all loops
	BindingClient kubernetes.Interface // that of bindings; nil is that of all loops
	Metadata      metadata.Interface   // the client by which a new leader finds out whether its caches have caught up
	Dynamic       dynamic.Interface    // the client for SharedVolumes and objects with conditions

	Events  record.EventRecorder
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Loops are the loops and their caches.
type Loops struct {
	Caches    *caches.Caches
	Discovery *table.Controller
	Claims    *claims.Controller
	Jobs      *jobs.Controller
	Usage     *usage.Controller
	Points    *accesspoints.Controller
	Binding   *binding.Controller // nil without FinishBinding
	// SharedVolumes work where their API is installed.
	SharedVolumes *sharedvolumes.Controller

	workers       *workers.Channel      // nil if no worker waits
	sharedVolumes *caches.SharedVolumes // which run with the loops: standbys need none
}

// New puts the loops together. api is nil when only pinned targets are used.
func New(client kubernetes.Interface, api table.API, o Options) (*Loops, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Loops{}
	var err error
	if l.Caches, err = caches.New(client, o.Metadata, o.Jobs.Namespace); err != nil {
		return nil, fmt.Errorf("making the caches: %w", err)
	}
	if o.Servers {
		l.Caches.WatchServices(client)
	}
	l.sharedVolumes = caches.NewSharedVolumes(client.Discovery(), o.Dynamic, o.SharedVolumeInterval, o.Log)
	if l.Discovery, err = table.New(client, l.Caches, api, o.discovery(func() ports.Demand {
		all, known := l.sharedVolumes.All()
		return sharedvolumes.Demand(all, known, o.SharedVolumePaths)
	}, func() ports.Demand { return l.Points.Demand() })); err != nil {
		return nil, err
	}
	if l.workers, err = o.channel(l.Caches); err != nil {
		return nil, err
	}
	g, err := o.gatherer(l)
	if err != nil {
		return nil, err
	}
	l.Points = o.points(g, api)
	g.Points = l.Points
	if l.Claims, err = claims.New(client, g, claims.Options{
		Rediscover: l.Discovery.Kick, Points: l.Points, Events: o.Events, Metrics: o.Metrics, Log: o.Log,
	}); err != nil {
		return nil, err
	}
	if l.Usage, err = usage.New(client, g, usage.Options{Events: o.Events, Metrics: o.Metrics, Log: o.Log}); err != nil {
		return nil, err
	}
	if l.Jobs, err = jobs.New(cmp.Or(o.JobsClient, client), g, jobs.Options{
		Jobs: o.Jobs, Batch: o.Batch, SweepDelay: o.SweepDelay, SurveyInterval: o.UsageInterval, Usage: l.Usage, Workers: l.workers,
		Blocked: l.Claims.Blocked, TaskEnded: l.Discovery.TaskEnded,
		Events: o.Events, Metrics: o.Metrics, Log: o.Log,
	}); err != nil {
		return nil, err
	}
	if l.SharedVolumes, err = sharedvolumes.New(client, o.Dynamic, l.Caches, l.sharedVolumes, sharedvolumes.Options{
		Paths: o.SharedVolumePaths, Targets: l.Discovery.Snapshot, Poll: l.Discovery.Kick, Now: o.Now,
		Events: o.Events, Metrics: o.Metrics, Log: o.Log,
	}); err != nil {
		return nil, err
	}
	if o.FinishBinding {
		l.Binding = binding.New(cmp.Or(o.BindingClient, client), l.Caches, binding.Options{
			Namespace: o.Jobs.Namespace, Provisioner: o.Provisioner, Now: o.Now, Metrics: o.Metrics, Log: o.Log,
		})
	}
	l.connect()
	return l, nil
}

func (l *Loops) connect() {
	l.workers.OnChange(l.Claims.BatchReported, l.Jobs.WorkerWaits)
	l.sharedVolumes.OnChange(func(string) { l.Discovery.DemandChanged() })
	l.Points.OnChange(l.Claims.PointChanged, l.Discovery.DemandChanged)
	l.Discovery.OnChange(l.SharedVolumes.TargetsChanged)
	l.Discovery.OnChange(l.Claims.TargetsChanged)
	l.Discovery.OnChange(l.Jobs.TargetsChanged)
}

func (o Options) gatherer(l *Loops) (*observe.Gatherer, error) {
	g, err := observe.New(o.Settings.Settings, l.Caches, l.Discovery.Snapshot)
	if err != nil {
		return nil, err
	}
	g.Now, g.Reported = o.Now, l.workers.Reported
	return g, nil
}

// points makes the loop of access points. An API that only reads, or none, makes none.
func (o Options) points(g *observe.Gatherer, api table.API) *accesspoints.Controller {
	writes, _ := api.(accesspoints.API)
	return accesspoints.New(accesspoints.Options{
		API: writes, Cluster: o.Cluster, FileSystems: g.PointSystems, Begun: g.BegunPoints, IsKnown: g.IsKnown,
		Exists:     func(volume string) bool { return g.Caches.Volume(volume) != nil },
		IsReleased: g.IsReleased, Interval: o.PollingInterval, Log: o.Log,
	})
}

func (o Options) channel(c *caches.Caches) (*workers.Channel, error) {
	if o.Jobs.Linger <= 0 {
		o.Workers.Host = ""
	}
	o.Workers.Caches, o.Workers.Namespace, o.Workers.Now, o.Workers.Metrics, o.Workers.Log = c, o.Jobs.Namespace, o.Now, o.Metrics, o.Log
	return workers.New(o.Workers)
}

func (o Options) discovery(demand, made func() ports.Demand) table.Options {
	return table.Options{
		Namespace: o.Jobs.Namespace, Provisioner: o.Provisioner, PollingInterval: o.PollingInterval, Range: o.Range,
		Demand: demand, Made: made, Filter: o.Filter, VPCID: o.VPCID, DNSSuffix: o.DNSSuffix, Now: o.Now,
		Dynamic: o.Dynamic, Leader: o.Leader, ClockWrong: o.ClockWrong,
		Log: o.Log, Events: o.Events, Metrics: o.Metrics,
	}
}

// Run runs the loops until the context ends, and returns when the syncs under way have ended.
// Only the leader may. The caches must run, and must have CaughtUp.
func (l *Loops) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	channelEnd, err := l.workers.Listen(ctx)
	if err != nil {
		return err
	}
	group.Go(channelEnd)
	runs := []func(context.Context) error{
		l.Discovery.Run, l.Claims.Run, l.Points.Run, l.Jobs.Run, l.Usage.Run, l.SharedVolumes.Run,
	}
	if l.Binding != nil {
		runs = append(runs, l.Binding.Run)
	}
	for _, run := range runs {
		group.Go(func() error { return run(ctx) })
	}
	group.Go(func() error {
		l.sharedVolumes.Run(ctx)
		return nil
	})
	return group.Wait()
}

// ClusterUID distinguishes this cluster from all others that share a file system.
func ClusterUID(ctx context.Context, client kubernetes.Interface) (string, error) {
	namespace, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}
