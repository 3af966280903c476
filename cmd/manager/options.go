package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/election"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/manager/sharedvolumes"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

type options struct {
	client.Options
	loops loops.Settings // their VPCID is "" to find out

	version    bool
	discovery  string // wellknown.DiscoveryAWS or wellknown.DiscoveryNone
	region     string // "" to find out
	pullPolicy string // becomes part of loops.Jobs
	podIP      string // "" if workers cannot reach this replica
	workerPort int

	qps   float32 // requests per second, without events and Lease
	burst int     // requests above that rate at once

	leaderElect bool
	lease       election.Options // without clients
}

func defaultOptions(e client.Environment) options {
	return options{
		Options: client.Options{Namespace: e.Namespace(), HTTPAddress: ":8080"},
		loops: loops.Settings{
			Settings:        decide.Settings{Provisioner: wellknown.DefaultProvisioner, Backoff: wellknown.DefaultProvisionBackoff},
			PollingInterval: 5 * time.Minute,
			Range: ports.Range{
				Base: wellknown.DefaultBasePort, Count: wellknown.DefaultPortCount, Reserved: []int{wellknown.AgentHTTPPort},
				NodePorts: ports.Span{First: wellknown.MinNodePort, Last: wellknown.MaxNodePort},
			},
			Jobs:  mountjobs.Settings{Timeout: wellknown.DefaultMountJobTimeout, Linger: wellknown.DefaultWorkerLinger},
			Batch: wellknown.DefaultMountJobBatch,
		},
		discovery: wellknown.DiscoveryAWS,
		podIP:     e.Getenv("POD_IP"), workerPort: wellknown.DefaultWorkerPort,
		qps: 200, burst: 300,
		leaderElect: true,
		lease: election.Options{
			Name: wellknown.ManagerLease, LeaseDuration: wellknown.DefaultLeaseDuration,
			RenewDeadline: wellknown.DefaultRenewDeadline, RetryPeriod: wellknown.DefaultRetryPeriod,
		},
	}
}

func (o *options) settings() *settings.Set {
	set := settings.New("manager")
	o.bindDiscovery(set.Group("File systems and their ports"))
	o.bindProvisioning(set.Group("Claims and mount Jobs"))
	o.bindKubernetes(set.Group("Kubernetes API"))
	o.bindElection(set.Group("Leader election"))
	observation := set.Group("Logs, health and metrics")
	o.AddObservation(observation)
	observation.Add(settings.Bool(&o.version), "version", "",
		"say which build this is, and end")
	return set
}

func (o *options) bindDiscovery(g *settings.Group) {
	g.Add(settings.OneOf(&o.discovery, "source", wellknown.DiscoveryAWS, wellknown.DiscoveryNone), "discovery", "",
		"`source` of file systems: aws, or none for pinned targets only, which needs no AWS credentials")
	g.Add(settings.Bool(&o.loops.Servers), "nfs-servers", "",
		"also use the NFS servers that Services of the manager's namespace name, as the component nfs-server grants it")
	g.Add(settings.Duration(&o.loops.PollingInterval, time.Second, 24*time.Hour), "efs-polling-interval", "EFS_POLLING_INTERVAL",
		"time between two listings of the file systems, plus up to 10 % jitter")
	g.Add(settings.Text(&o.region, "region", client.CheckRegion), "aws-region", "AWS_REGION",
		"`region` of the file systems; default is what the AWS SDK, the instance metadata, or the label of a node says")
	g.Add(settings.Text(&o.loops.VPCID, "vpc", checkVPC), "vpc-id", "",
		"`vpc` of the nodes, whose mount targets alone are used; default is that of the instance metadata, else any")
	g.Add(settings.List(&o.loops.Filter.IDs, "ids", efs.CheckFileSystemID), "file-system-ids", "",
		"comma-separated `ids` of the only file systems that are used")
	g.Add(settings.Parsed(&o.loops.Filter.Tags, "tags", efs.ParseTags, nil), "file-system-tags", "",
		"comma-separated key=value `tags` that file systems must have to be used")
	g.Add(settings.Parsed(&o.loops.Aliases, "aliases", parseAliases, nil), "file-system-aliases", "",
		"comma-separated `aliases` fs-new=fs-old: fs-new is a restored or replicated copy of fs-old")
	g.Add(settings.Integer(&o.loops.Range.Base, wellknown.MinPort, wellknown.MaxPort), "base-stunnel-port", "BASE_STUNNEL_PORT",
		"first local `port` that a file system can get")
	g.Add(settings.Integer(&o.loops.Range.Count, 1, wellknown.MaxPort), "stunnel-port-count", "",
		"`number` of local ports, from the base on")
	g.Add(settings.Parsed(&o.loops.Range.NodePorts, "first-last", ports.ParseSpan, ports.Span.String), "node-port-range", "",
		"`first-last` port of the cluster's NodePort services, as kube-apiserver's --service-node-port-range has it; no file system gets one of them")
}

func (o *options) bindProvisioning(g *settings.Group) {
	g.Add(settings.Text(&o.loops.Provisioner, "name", checkProvisioner), "provisioner", "STORAGE_PROVISIONER_NAME",
		"`name` by which storage classes ask for this provisioner")
	g.Rare().Add(settings.Duration(&o.loops.Backoff, time.Second, time.Hour), "provision-backoff-interval", "PROVISION_BACKOFF_INTERVAL",
		fmt.Sprintf("wait after a first failed setup; it doubles up to %d times this", wellknown.MaxProvisionBackoffFactor))
	g.Rare().Add(settings.Integer(&o.loops.Threshold, 0, math.MaxInt32), "failed-retry-threshold", "",
		"`number` of failed setups after which a claim is given up until something changes; 0 is never")
	g.Add(settings.Text(&o.loops.Jobs.Image, "image", checkImage), "worker-image", "WORKER_IMAGE",
		"`image` of mount Jobs, which holds mountjob")
	g.Add(settings.OneOf(&o.pullPolicy, "policy", string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever)), "worker-image-pull-policy", "",
		"`policy` for pulling it: Always, IfNotPresent or Never; default is Kubernetes' own")
	g.Add(settings.List(&o.loops.Jobs.ImagePullSecrets, "names", client.CheckName("an object")), "worker-image-pull-secrets", "",
		"comma-separated `names` of Secrets for pulling it")
	g.Add(settings.Text(&o.loops.Jobs.PriorityClassName, "class", client.CheckName("an object")), "worker-priority-class", "",
		"priority `class` of mount Jobs, but not of sweeps and surveys; default is the cluster's, and the manifests set system-cluster-critical")
	g.Add(settings.Parsed(&o.loops.Jobs.Tolerations, "taints", mountjobs.ParseTolerations, nil), "worker-tolerations", "",
		"comma-separated `taints`, as key=value:effect, of nodes that take mount Jobs, sweeps and surveys nevertheless; without a value or an effect, any")
	g.Add(settings.Parsed(&o.loops.Jobs.NodeSelector, "labels", mountjobs.ParseNodeSelector, nil), "worker-node-selector", "",
		"comma-separated key=value `labels` that the nodes of mount Jobs, sweeps and surveys must have; default is any node with an agent")
	g.Rare().Add(settings.Integer(&o.loops.Batch, 1, math.MaxInt32), "mount-job-batch", "",
		"`number` of operations that one mount Job carries at most")
	g.Rare().Add(settings.Duration(&o.loops.Jobs.Timeout, time.Minute, 24*time.Hour), "mount-job-timeout", "",
		"deadline of a mount Job's pod")
	g.Rare().Add(settings.Duration(&o.loops.Jobs.Linger, 0, time.Hour), "worker-linger", "",
		"how long the pod of a mount Job waits for more operations; 0s is not at all")
	g.Rare().Add(settings.Integer(&o.workerPort, 1, wellknown.MaxPort), "worker-port", "",
		"`port` where the leader listens for workers, on the address in POD_IP; without that, no worker waits")
	g.Add(settings.Duration(&o.loops.UsageInterval, 0, 366*24*time.Hour), "usage-interval", "",
		"time between two surveys of what each volume holds; 0s is never, unless kubectl efs-stunnel usage --now asks for one")
	g.Add(settings.Bool(&o.loops.FinishBinding), "finish-binding", "",
		"bind claims to their volumes where kube-controller-manager has not for two seconds, as the component fast-binding grants it")
	g.Add(settings.List(&o.loops.SharedVolumePaths, "namespaces", checkPathNamespace), "shared-volume-paths", "",
		"comma-separated `namespaces` whose SharedVolumes may name a path, which reaches everything on the file system; * is all, default is none")
}

func (o *options) bindKubernetes(g *settings.Group) {
	o.AddAPI(g, "ConfigMaps, Lease, root claims and mount Jobs; default is the pod's own, outside a cluster")
	g.Rare().Add(settings.Positive(&o.qps), "kube-api-qps", "",
		"requests per second to the apiserver; mount Jobs and --finish-binding have as many of their own, events and the Lease do not count")
	g.Rare().Add(settings.Integer(&o.burst, 1, math.MaxInt32), "kube-api-burst", "",
		"`number` of requests that may exceed that rate at once")
}

func (o *options) bindElection(g *settings.Group) {
	g.Rare().Add(settings.Bool(&o.leaderElect), "leader-elect", "",
		"replicas compete for a Lease, and one leads; without it there must be one replica only")
	g.Rare().Add(settings.Duration(&o.lease.LeaseDuration, time.Second, time.Hour), "leader-elect-lease-duration", "",
		"how long the others wait for a silent leader")
	g.Rare().Add(settings.Duration(&o.lease.RenewDeadline, time.Millisecond, time.Hour), "leader-elect-renew-deadline", "",
		"how long a leader tries to renew its Lease before it gives up")
	g.Rare().Add(settings.Duration(&o.lease.RetryPeriod, time.Millisecond, time.Hour), "leader-elect-retry-period", "",
		"time between two renewals of the Lease, which standbys read four times as often")
	g.Rare().Add(settings.Text(&o.lease.Name, "name", client.CheckName("an object")), "leader-elect-resource-name", "",
		"`name` of the Lease")
}

// parseOptions reads arguments and environment. Every error is one line for users; help is settings.ErrHelp.
func parseOptions(args []string, e client.Environment) (options, *settings.Set, error) {
	o := defaultOptions(e)
	set := o.settings()
	if len(args) == 1 && args[0] == "version" {
		args = []string{"--version"}
	}
	if err := set.Parse(args, e.Getenv); err != nil {
		return o, set, err
	}
	if o.version {
		return o, set, nil
	}
	o.loops.Jobs.Namespace, o.loops.Jobs.ImagePullPolicy = o.Namespace, corev1.PullPolicy(o.pullPolicy)
	return o, set, o.check(set)
}

func (o *options) check(set *settings.Set) error {
	if o.loops.Jobs.Image == "" {
		return fmt.Errorf("%s is missing: want the image that holds mountjob", set.Names("worker-image"))
	}
	if err := client.CheckNamespace(o.Namespace); err != nil { // its default is read from a file
		return set.Wrong("namespace", err)
	}
	if err := o.loops.Range.Check(); err != nil {
		return set.Wrong("base-stunnel-port", err)
	}
	return checkLease(o.lease, set)
}

// checkLease requires what client-go requires, and names the settings in its errors.
func checkLease(l election.Options, set *settings.Set) error {
	if l.LeaseDuration <= l.RenewDeadline {
		return set.Wrong("leader-elect-lease-duration", fmt.Errorf("want more than %s, which is %s",
			set.Origin("leader-elect-renew-deadline"), settings.Short(l.RenewDeadline)))
	}
	if float64(l.RenewDeadline) <= leaderelection.JitterFactor*float64(l.RetryPeriod) {
		return set.Wrong("leader-elect-renew-deadline", fmt.Errorf("want more than %g times %s, which is %s",
			leaderelection.JitterFactor, set.Origin("leader-elect-retry-period"), settings.Short(l.RetryPeriod)))
	}
	return nil
}

// The errors of the checks say what is allowed; package settings adds setting and value.

func checkPathNamespace(name string) error {
	if name != sharedvolumes.AnyNamespace && client.CheckNamespace(name) != nil {
		return errors.New(`want names of namespaces, with commas between, or *`)
	}
	return nil
}

// checkProvisioner requires what the apiserver requires of a class's provisioner, and no name of Kubernetes' own.
func checkProvisioner(name string) error {
	domain, _, qualified := strings.Cut(name, "/")
	if !qualified || len(validation.IsQualifiedName(strings.ToLower(name))) > 0 {
		return errors.New(`want a domain, "/", and 1 to 63 letters, digits, "-", "_" or ".", as ` + wellknown.DefaultProvisioner)
	}
	if domain == wellknown.KubernetesDomain || strings.HasSuffix(domain, "."+wellknown.KubernetesDomain) {
		return fmt.Errorf("want a name that is not below %s, or the cluster takes its volumes for its own", wellknown.KubernetesDomain)
	}
	return nil
}

// checkImage leaves other mistakes to the container runtime.
func checkImage(image string) error {
	if image == "" || strings.ContainsAny(image, " \t\r\n") {
		return errors.New("want the name of an image, without spaces")
	}
	return nil
}

var vpc = regexp.MustCompile(`^vpc-[0-9a-z]{1,40}$`)

func checkVPC(id string) error {
	if !vpc.MatchString(id) {
		return errors.New("want vpc- and 1 to 40 lower-case letters or digits")
	}
	return nil
}

// parseAliases parses fs-new=fs-old,…; a copy of a copy is allowed.
func parseAliases(text string) (map[string][]string, error) {
	aliases := map[string][]string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		fresh, old, ok := strings.Cut(item, "=")
		switch _, twice := aliases[fresh]; {
		case !ok:
			return nil, fmt.Errorf("%q is no alias: want fs-new=fs-old", item)
		case efs.CheckFileSystemID(fresh) != nil:
			return nil, efs.CheckFileSystemID(fresh)
		case efs.CheckFileSystemID(old) != nil:
			return nil, efs.CheckFileSystemID(old)
		case fresh == old:
			return nil, fmt.Errorf("%q: want two file systems, as none is a copy of itself", item)
		case twice:
			return nil, fmt.Errorf("%q is the second alias of %s: want one, as it is the copy of one file system", item, fresh)
		}
		aliases[fresh] = []string{old}
	}
	return aliases, nil
}
