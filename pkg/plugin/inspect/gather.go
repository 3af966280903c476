package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Options say what to gather.
type Options struct {
	// Namespace is the installation's; "" tries those of the shipped manifests.
	Namespace string
	// Provisioner is that of the storage classes; "" is the manager's.
	Provisioner string
	// ClaimNamespace is where claims are read if the user may not read those of all namespaces.
	ClaimNamespace string
	// WithUsers also reads the pods of ClaimNamespace, and their events.
	WithUsers bool
	// Dynamic reads SharedVolumes and objects with conditions; nil leaves them out.
	Dynamic dynamic.Interface
	Now     func() time.Time
}

// Namespaces are those of the shipped manifests.
func Namespaces() []string { return []string{wellknown.Namespace, "openshift-" + wellknown.Namespace} }

// Gather reads what an installation consists of. What the user may not read is in Unread; any other
// failure is an error.
func Gather(ctx context.Context, client kubernetes.Interface, o Options) (*Snapshot, error) {
	g := gatherer{client: client, options: o, snapshot: &Snapshot{}}
	for _, step := range []func(context.Context) error{
		g.installation, g.programs, g.table, g.work, g.cluster, g.claims, g.sharedVolumes, g.conditions, g.events, g.users,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	g.snapshot.Now = o.Now()
	return g.snapshot, nil
}

// Find reads the agents only, and so where the installation is.
func Find(ctx context.Context, client kubernetes.Interface, o Options) (*Snapshot, error) {
	g := gatherer{client: client, options: o, snapshot: &Snapshot{}}
	return g.snapshot, g.installation(ctx)
}

type gatherer struct {
	client   kubernetes.Interface
	options  Options
	snapshot *Snapshot
}

// installation finds the namespace: the DaemonSet is there wherever the manager runs.
func (g *gatherer) installation(ctx context.Context) error {
	s := g.snapshot
	candidates := []string{g.options.Namespace}
	if g.options.Namespace == "" {
		candidates = Namespaces()
	}
	for _, namespace := range candidates {
		object, err := g.client.AppsV1().DaemonSets(namespace).Get(ctx, wellknown.NodeDaemonSet, metav1.GetOptions{})
		if err == nil {
			s.Namespace, s.Agents, s.Unread = namespace, object, nil
			return nil
		}
		if err := g.unread(err, Unread{"get", "daemonsets.apps", namespace, wellknown.NodeDaemonSet}); err != nil {
			return err
		}
	}
	s.Namespace = candidates[0]
	s.Unread = s.Unread[:min(len(s.Unread), 1)] // one missing right is reported, not one for each candidate
	return nil
}

// unread keeps what is forbidden. An object that does not exist is no error either.
func (g *gatherer) unread(err error, what Unread) error {
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		if !slices.Contains(g.snapshot.Unread, what) {
			g.snapshot.Unread = append(g.snapshot.Unread, what)
		}
		return nil
	}
	return fmt.Errorf("reading %s: %w", what.Resource, err)
}

// get reads one object; it is nil when it does not exist or may not be read.
func get[T any](ctx context.Context, g *gatherer, what Unread, read func(context.Context, string, metav1.GetOptions) (*T, error)) (*T, error) {
	what.Verb = "get"
	object, err := read(ctx, what.Name, metav1.GetOptions{})
	if err != nil {
		return nil, g.unread(err, what)
	}
	return object, nil
}

// list reads all pages of a list.
func list[L runtime.Object](ctx context.Context, g *gatherer, what Unread, selector string,
	read func(context.Context, metav1.ListOptions) (L, error), add func(runtime.Object),
) error {
	what.Verb = "list"
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return read(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{FieldSelector: selector}, func(object runtime.Object) error {
		add(object)
		return nil
	})
	return g.unread(err, what)
}

// into appends the objects of a list to a slice.
func into[T runtime.Object](all *[]T) func(runtime.Object) {
	return func(object runtime.Object) {
		if typed, ok := object.(T); ok {
			*all = append(*all, typed)
		}
	}
}

func (g *gatherer) programs(ctx context.Context) (err error) {
	s := g.snapshot
	s.Manager, err = get(ctx, g, Unread{Resource: "deployments.apps", Namespace: s.Namespace, Name: wellknown.ManagerDeployment},
		g.client.AppsV1().Deployments(s.Namespace).Get)
	if err != nil {
		return err
	}
	s.Provisioner = g.options.Provisioner
	if s.Provisioner == "" {
		s.Provisioner = provisionerOf(s.Manager)
	}
	lease := cmp.Or(setting(s.Manager, "--leader-elect-resource-name", ""), wellknown.ManagerLease)
	s.Lease, err = get(ctx, g, Unread{Resource: "leases.coordination.k8s.io", Namespace: s.Namespace, Name: lease},
		g.client.CoordinationV1().Leases(s.Namespace).Get)
	return err
}

func (g *gatherer) table(ctx context.Context) (err error) {
	s, maps := g.snapshot, g.client.CoreV1().ConfigMaps(g.snapshot.Namespace)
	s.Table, err = get(ctx, g, Unread{Resource: "configmaps", Namespace: s.Namespace, Name: wellknown.TargetsConfigMap}, maps.Get)
	if err != nil {
		return err
	}
	s.Pinned, err = get(ctx, g, Unread{Resource: "configmaps", Namespace: s.Namespace, Name: wellknown.PinnedConfigMap}, maps.Get)
	return err
}

// work reads Jobs before pods: a Job without its pod would seem lost.
func (g *gatherer) work(ctx context.Context) error {
	s := g.snapshot
	if err := list(ctx, g, Unread{Resource: "jobs.batch", Namespace: s.Namespace}, "",
		g.client.BatchV1().Jobs(s.Namespace).List, into[*batchv1.Job](&s.Jobs)); err != nil {
		return err
	}
	return list(ctx, g, Unread{Resource: "pods", Namespace: s.Namespace}, "",
		g.client.CoreV1().Pods(s.Namespace).List, into[*corev1.Pod](&s.Pods))
}

func (g *gatherer) cluster(ctx context.Context) error {
	s := g.snapshot
	if err := list(ctx, g, Unread{Resource: "storageclasses.storage.k8s.io"}, "",
		g.client.StorageV1().StorageClasses().List, into[*storagev1.StorageClass](&s.Classes)); err != nil {
		return err
	}
	if err := list(ctx, g, Unread{Resource: "nodes"}, "", g.client.CoreV1().Nodes().List, into[*corev1.Node](&s.Nodes)); err != nil {
		return err
	}
	return list(ctx, g, Unread{Resource: "persistentvolumes"}, "",
		g.client.CoreV1().PersistentVolumes().List, into[*corev1.PersistentVolume](&s.Volumes))
}

// claims reads those of all namespaces, or at least those of the user's own and the root claims.
func (g *gatherer) claims(ctx context.Context) error {
	s := g.snapshot
	return g.everywhere("persistentvolumeclaims", func(namespace string) error {
		return list(ctx, g, Unread{Resource: "persistentvolumeclaims", Namespace: namespace}, "",
			g.client.CoreV1().PersistentVolumeClaims(namespace).List, into[*corev1.PersistentVolumeClaim](&s.Claims))
	})
}

// everywhere reads in all namespaces, and if that is forbidden in those that matter most.
func (g *gatherer) everywhere(resource string, read func(namespace string) error) error {
	if err := read(metav1.NamespaceAll); err != nil || !g.snapshot.lacks(resource) {
		return err
	}
	if own := g.options.ClaimNamespace; own != "" && own != g.snapshot.Namespace {
		if err := read(own); err != nil {
			return err
		}
	}
	return read(g.snapshot.Namespace)
}

func (g *gatherer) events(ctx context.Context) error {
	s := g.snapshot
	read := func(namespace, kind string) error {
		selector := ""
		if kind != "" {
			selector = fields.OneTermEqualSelector("involvedObject.kind", kind).String()
		}
		return list(ctx, g, Unread{Resource: "events", Namespace: namespace}, selector, g.client.CoreV1().Events(namespace).List, g.addEvent)
	}
	if err := g.everywhere("events", func(namespace string) error { return read(namespace, "PersistentVolumeClaim") }); err != nil {
		return err
	}
	if err := read(s.Namespace, ""); err != nil {
		return err
	}
	for _, kind := range []string{"Node", "PersistentVolume"} { // which have no namespace
		if err := read(metav1.NamespaceDefault, kind); err != nil {
			return err
		}
	}
	if g.options.WithUsers {
		return read(g.options.ClaimNamespace, "Pod")
	}
	return nil
}

func (g *gatherer) addEvent(object runtime.Object) {
	if event, ok := object.(*corev1.Event); ok {
		g.snapshot.Events = append(g.snapshot.Events, *event)
	}
}

func (g *gatherer) users(ctx context.Context) error {
	if !g.options.WithUsers {
		return nil
	}
	s, namespace := g.snapshot, g.options.ClaimNamespace
	return list(ctx, g, Unread{Resource: "pods", Namespace: namespace}, "",
		g.client.CoreV1().Pods(namespace).List, into[*corev1.Pod](&s.Users))
}
