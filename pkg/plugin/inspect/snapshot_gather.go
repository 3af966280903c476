package inspect

import (
	"cmp"
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
)

// Options select what to gather.
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
	Now     func() time.Time // the apiserver's
}

// Namespaces returns those of the shipped manifests.
func Namespaces() []string { return []string{wellknown.Namespace, "openshift-" + wellknown.Namespace} }

// Gather reads what an installation consists of. What the user may not read is in Unread, and no error.
func Gather(ctx context.Context, client kubernetes.Interface, o Options) (*Snapshot, error) {
	return read(ctx, client, o, (*gatherer).installation, (*gatherer).programs, (*gatherer).work, (*gatherer).cluster,
		(*gatherer).conditions, (*gatherer).events)
}

// Locate reads the manager, the agents and the table only.
func Locate(ctx context.Context, client kubernetes.Interface, o Options) (*Snapshot, error) {
	return read(ctx, client, o, (*gatherer).installation, (*gatherer).programs)
}

// read gathers by steps, of which later ones need what earlier ones have read.
func read(ctx context.Context, client kubernetes.Interface, o Options, steps ...func(*gatherer, context.Context)) (*Snapshot, error) {
	s := &Snapshot{}
	g := &gatherer{Reader: reading.Reader{Unread: &s.Unread}, client: client, options: o, snapshot: s}
	for _, step := range steps {
		if step(g, ctx); g.Failed != nil {
			return nil, g.Failed
		}
	}
	s.Now = o.Now()
	return s, nil
}

type gatherer struct {
	reading.Reader

	client   kubernetes.Interface
	options  Options
	snapshot *Snapshot
}

// listCustom reads objects of our own definitions, and keeps those with conditions also as they are.
func listCustom[T any](ctx context.Context, g *gatherer, resource schema.GroupVersionResource, namespace string,
	parse func(*unstructured.Unstructured) (*T, error),
) (all []*T) {
	hasConditions := resource != v1alpha1.SharedVolumes()
	items := reading.List[*unstructured.Unstructured](ctx, &g.Reader, resource.GroupResource().String(), namespace, "",
		func(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
			found, err := g.options.Dynamic.Resource(resource).Namespace(namespace).List(ctx, o)
			g.snapshot.Undefined = g.snapshot.Undefined || apierrors.IsNotFound(err) && hasConditions
			return found, err
		})
	if hasConditions {
		g.snapshot.Conditions = append(g.snapshot.Conditions, items...)
	}
	for _, item := range items {
		typed, err := parse(item)
		if err != nil {
			g.Failed = err
			return nil
		}
		all = append(all, typed)
	}
	return all
}

// everywhere reads in all namespaces, and if that is forbidden in those that matter most.
func (g *gatherer) everywhere(resource string, read func(namespace string)) {
	read(metav1.NamespaceAll)
	if !g.snapshot.lacks(resource) {
		return
	}
	if own := g.options.ClaimNamespace; own != "" && own != g.snapshot.Namespace {
		read(own)
	}
	read(g.snapshot.Namespace)
}

// installation finds the namespace: the DaemonSet is there wherever the manager runs.
func (g *gatherer) installation(ctx context.Context) {
	s, candidates := g.snapshot, []string{g.options.Namespace}
	if g.options.Namespace == "" {
		candidates = Namespaces()
	}
	for _, namespace := range candidates {
		s.Agents = reading.Get(ctx, &g.Reader, "daemonsets.apps", namespace, wellknown.NodeDaemonSet, g.client.AppsV1().DaemonSets(namespace).Get)
		if s.Agents != nil {
			s.Namespace, s.Unread = namespace, nil
			return
		}
	}
	s.Namespace = candidates[0]
	s.Unread = s.Unread[:min(len(s.Unread), 1)] // one missing right is reported, not one for each candidate
}

func (g *gatherer) programs(ctx context.Context) {
	s, maps := g.snapshot, g.client.CoreV1().ConfigMaps(g.snapshot.Namespace)
	s.Manager = reading.Get(ctx, &g.Reader, "deployments.apps", s.Namespace, wellknown.ManagerDeployment, g.client.AppsV1().Deployments(s.Namespace).Get)
	s.Provisioner = cmp.Or(g.options.Provisioner, provisionerOf(s.Manager))
	lease := cmp.Or(setting(s.Manager, "--leader-elect-resource-name", ""), wellknown.ManagerLease)
	s.Lease = reading.Get(ctx, &g.Reader, "leases.coordination.k8s.io", s.Namespace, lease, g.client.CoordinationV1().Leases(s.Namespace).Get)
	s.Table = reading.Get(ctx, &g.Reader, "configmaps", s.Namespace, wellknown.TargetsConfigMap, maps.Get)
	s.Pinned = reading.Get(ctx, &g.Reader, "configmaps", s.Namespace, wellknown.PinnedConfigMap, maps.Get)
}

// work reads Jobs before pods: a Job without its pod would seem lost.
func (g *gatherer) work(ctx context.Context) {
	s := g.snapshot
	s.Jobs = reading.List[*batchv1.Job](ctx, &g.Reader, "jobs.batch", s.Namespace, "", g.client.BatchV1().Jobs(s.Namespace).List)
	s.Pods = reading.List[*corev1.Pod](ctx, &g.Reader, "pods", s.Namespace, "", g.client.CoreV1().Pods(s.Namespace).List)
}

// cluster reads the claims of all namespaces, or at least those of the user's own and the root claims.
func (g *gatherer) cluster(ctx context.Context) {
	s, core := g.snapshot, g.client.CoreV1()
	s.Classes = reading.List[*storagev1.StorageClass](ctx, &g.Reader, classResource, "", "", g.client.StorageV1().StorageClasses().List)
	s.Nodes = reading.List[*corev1.Node](ctx, &g.Reader, "nodes", "", "", core.Nodes().List)
	s.Volumes = reading.List[*corev1.PersistentVolume](ctx, &g.Reader, volumeResource, "", "", core.PersistentVolumes().List)
	g.everywhere(claimResource, func(namespace string) {
		s.Claims = append(s.Claims, reading.List[*corev1.PersistentVolumeClaim](ctx, &g.Reader, claimResource, namespace, "", core.PersistentVolumeClaims(namespace).List)...)
	})
}

// conditions reads the objects that manager and agents write, and SharedVolumes, which have a status, too.
func (g *gatherer) conditions(ctx context.Context) {
	if g.options.Dynamic == nil {
		return
	}
	s := g.snapshot
	g.everywhere(sharedResource, func(namespace string) {
		all := listCustom(ctx, g, v1alpha1.SharedVolumes(), namespace, v1alpha1.FromUnstructured)
		s.SharedVolumes = append(s.SharedVolumes, all...)
	})
	fileSystems := listCustom(ctx, g, v1alpha1.FileSystems(), "", v1alpha1.Read[v1alpha1.FileSystem])
	s.FileSystemObjects = keep(fileSystems, func(o *v1alpha1.FileSystem) bool { return o.Labels[wellknown.LabelInstallation] == s.Namespace })
	s.NodeTunnels = listCustom(ctx, g, v1alpha1.NodeTunnelsObjects(), "", v1alpha1.Read[v1alpha1.NodeTunnels])
	installations := listCustom(ctx, g, v1alpha1.Installations(), "", v1alpha1.Read[v1alpha1.Installation])
	s.Installation = first(installations, func(o *v1alpha1.Installation) bool { return o.Name == s.Namespace })
}

// events reads the users' pods, too, after their events.
func (g *gatherer) events(ctx context.Context) {
	s := g.snapshot
	read := func(namespace, kind string) {
		selector := ""
		if kind != "" {
			selector = fields.OneTermEqualSelector("involvedObject.kind", kind).String()
		}
		for _, event := range reading.List[*corev1.Event](ctx, &g.Reader, "events", namespace, selector, g.client.CoreV1().Events(namespace).List) {
			s.Events = append(s.Events, *event)
		}
	}
	g.everywhere("events", func(namespace string) { read(namespace, "PersistentVolumeClaim") })
	read(s.Namespace, "")
	for _, kind := range []string{"Node", "PersistentVolume"} { // which have no namespace
		read(metav1.NamespaceDefault, kind)
	}
	if namespace := g.options.ClaimNamespace; g.options.WithUsers {
		read(namespace, "Pod")
		s.Users = reading.List[*corev1.Pod](ctx, &g.Reader, "pods", namespace, "", g.client.CoreV1().Pods(namespace).List)
	}
}
