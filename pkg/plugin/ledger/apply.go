package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Cluster reads the objects of a cluster that plans of volumes are compared with.
func (r Runner) Cluster(ctx context.Context, c rebuild.Cluster) (rebuild.Cluster, error) {
	var unread []inspect.Unread
	reader, core := reading.Reader{Unread: &unread}, r.Client.CoreV1()
	volumes := reading.List[*corev1.PersistentVolume](ctx, &reader, "persistentvolumes", "", "", core.PersistentVolumes().List)
	claims := reading.List[*corev1.PersistentVolumeClaim](ctx, &reader, "persistentvolumeclaims", "", "", core.PersistentVolumeClaims(metav1.NamespaceAll).List)
	namespaces := reading.List[*corev1.Namespace](ctx, &reader, "namespaces", "", "", core.Namespaces().List)
	classes := reading.List[*storagev1.StorageClass](ctx, &reader, "storageclasses.storage.k8s.io", "", "", r.Client.StorageV1().StorageClasses().List)
	c.Volumes = reading.Index(volumes, (*corev1.PersistentVolume).GetName)
	c.Claims = reading.Index(claims, reading.NameOf)
	c.Namespaces = reading.Index(namespaces, (*corev1.Namespace).GetName)
	c.Classes = reading.Index(classes, (*storagev1.StorageClass).GetName)
	if len(unread) > 0 {
		return c, fmt.Errorf("you have no right to %s", unread[0])
	}
	return c, reader.Failed
}

// PlanRebuild plans the volumes of a cluster that must be gone, unless it is this one. It reads the ledgers before
// the cluster's objects: an owner is there before its volume.
func (r Runner) PlanRebuild(ctx context.Context, fileSystems []string, lost requests.Lost, plan rebuild.Rebuild) (items []rebuild.Item, others map[string]int, err error) {
	gone := &lost
	if lost.Cluster == plan.UID {
		gone = nil
	}
	answers, err := r.Ask(ctx, ToEach(fileSystems, requests.Request{Do: requests.ListOwners, Lost: gone}))
	if err != nil {
		return nil, nil, err
	}
	ledgers := map[string][]requests.Owned{}
	for id, answer := range answers {
		ledgers[id] = answer.Owned
	}
	if plan.Cluster, err = r.Cluster(ctx, plan.Cluster); err != nil {
		return nil, nil, err
	}
	plan.Of = lost.Cluster
	items = plan.Plan(ledgers)
	listed := Requests{}
	for id, paths := range rebuild.Paths(items) {
		listed[id] = directoryRequests(requests.Directories{Paths: paths})
	}
	if answers, err = r.Ask(ctx, listed); err != nil {
		return nil, nil, err
	}
	directories := map[string][]requests.Directory{}
	for id, answer := range answers {
		directories[id] = answer.Directories
	}
	rebuild.RefuseMissing(items, directories)
	return items, plan.Others(ledgers), nil
}

// Directories lists directories of a file system, and its ledger.
func (r Runner) Directories(ctx context.Context, fileSystem string, wanted requests.Directories) ([]requests.Directory, []requests.Owned, error) {
	answers, err := r.Ask(ctx, Requests{fileSystem: directoryRequests(wanted)})
	if err != nil {
		return nil, nil, err
	}
	return answers[fileSystem].Directories, answers[fileSystem].Owned, nil
}

// Apply does what is planned: first the ledgers, then volumes, then claims. An item that fails does not keep
// the others from it. A run that is interrupted is completed by the next one.
func (r Runner) Apply(ctx context.Context, items []rebuild.Item, cluster string, lost *requests.Lost) error {
	failed := r.adopt(ctx, items, cluster, lost)
	// A binder that observes a claim before its volume retries it only after 15 seconds.
	err := finish(ctx, items, rebuild.Planned, func(item rebuild.Item) error {
		return create(ctx, "volume", item.NewVolume, r.Client.CoreV1().PersistentVolumes().Create)
	})
	if err != nil {
		return errors.Join(failed, err)
	}
	r.awaitPorts(ctx, items)
	return errors.Join(failed, finish(ctx, items, rebuild.Done, func(item rebuild.Item) error {
		return create(ctx, "claim", item.NewClaim, r.Client.CoreV1().PersistentVolumeClaims(item.Namespace).Create)
	}))
}

// finish makes one object of each planned item, whose next state it is then. An error ends an item; the end of the
// context ends all.
func finish(ctx context.Context, items []rebuild.Item, next rebuild.State, one func(rebuild.Item) error) error {
	for i := range items {
		item := &items[i]
		if item.State != rebuild.Planned {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		item.State = next
		if err := one(*item); err != nil {
			item.State, item.Note = rebuild.Failed, err.Error()
		}
	}
	return nil
}

// create makes nothing of an object that is there, nil.
func create[T any](ctx context.Context, what string, object *T,
	write func(context.Context, *T, metav1.CreateOptions) (*T, error),
) error {
	if object == nil {
		return nil
	}
	if _, err := write(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the %s: %w", what, err)
	}
	return nil
}

// adopt makes volumes the owners of their directories. Items that do not become owners are failed.
func (r Runner) adopt(ctx context.Context, items []rebuild.Item, cluster string, lost *requests.Lost) error {
	volumes, wanted := map[string][]requests.Volume{}, Requests{}
	for _, item := range items {
		if item.State == rebuild.Planned && item.Adoption != nil {
			volumes[item.FileSystem] = append(volumes[item.FileSystem], *item.Adoption)
		}
	}
	for id, all := range volumes {
		for _, piece := range pieces(all) {
			adoption := &requests.Adoption{Cluster: cluster, Lost: lost, Volumes: piece}
			wanted[id] = append(wanted[id], requests.Request{Do: requests.AdoptVolumes, Adoption: adoption})
		}
	}
	answers, err := r.Ask(ctx, wanted)
	type key struct{ fileSystem, volume, path string }
	problems := map[key]string{}
	for id, answer := range answers {
		for _, adopted := range answer.Adopted {
			problems[key{id, adopted.Volume, adopted.Path}] = adopted.Problem
		}
	}
	for i := range items {
		item := &items[i]
		problem, answered := problems[key{item.FileSystem, item.Volume, item.Path}]
		if !answered {
			problem = "its owner was not recorded"
		}
		if item.State == rebuild.Planned && item.Adoption != nil && problem != "" {
			item.State, item.Note = rebuild.Failed, problem
		}
	}
	return err
}

// awaitPorts waits until the manager has given the access points of new volumes their ports: a pod that mounts such a
// volume before has no tunnel until it is started anew. An item whose volume gets none has failed.
func (r Runner) awaitPorts(ctx context.Context, items []rebuild.Item) {
	waiting := map[string]*rebuild.Item{}
	for i := range items {
		if item := &items[i]; item.State == rebuild.Planned && item.AccessPoint != "" && item.NewClaim != nil {
			waiting[item.Volume] = item
		}
	}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, portTimeout, true, func(ctx context.Context) (bool, error) {
		for name := range waiting {
			volume, err := r.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			if ports.VolumeOf(volume).Port != 0 {
				delete(waiting, name)
			}
		}
		return len(waiting) == 0, nil
	})
	for _, item := range waiting {
		item.State, item.Note = rebuild.Failed, fmt.Sprintf("its claim was not created: no manager has given access point %s a local port: %v; "+
			"see kubectl efs-stunnel status, and run this command again", item.AccessPoint, err)
	}
}

// portTimeout is many times what a manager needs that runs.
const portTimeout = time.Minute

// AwaitBound waits until the claims that were created are bound. The items whose claims are not say so.
func (r Runner) AwaitBound(ctx context.Context, items []rebuild.Item, timeout time.Duration) error {
	unbound := map[types.NamespacedName]int{}
	for i, item := range items {
		if item.State == rebuild.Done && item.NewClaim != nil {
			unbound[types.NamespacedName{Namespace: item.Namespace, Name: item.Claim}] = i
		}
	}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		err := r.dropBound(ctx, unbound)
		return len(unbound) == 0, err
	})
	for _, i := range unbound {
		items[i].Note = cmp.Or(items[i].Note, "its claim is not bound yet: see kubectl describe pvc")
	}
	if err != nil && len(unbound) > 0 {
		return fmt.Errorf("%d claims are not bound yet: %w", len(unbound), err)
	}
	return nil
}

func (r Runner) dropBound(ctx context.Context, unbound map[types.NamespacedName]int) error {
	namespaces := map[string]bool{}
	for name := range unbound {
		namespaces[name.Namespace] = true
	}
	for namespace := range namespaces {
		claims, err := r.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing claims: %w", err)
		}
		for _, claim := range claims.Items {
			if claim.Status.Phase == corev1.ClaimBound {
				delete(unbound, types.NamespacedName{Namespace: namespace, Name: claim.Name})
			}
		}
	}
	return nil
}
