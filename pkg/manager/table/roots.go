package table

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

type root struct {
	volumes.RootPair
	left     bool           // the file system is no longer in the table, so both are deleted
	jobs     []*batchv1.Job // deletable ones, whose pods protect the claim
	orphaned bool           // the other installation that has the volume has no namespace any more; read live
}

func (c *Controller) syncRoots(ctx context.Context, _ string) (again time.Duration, err error) {
	d := c.inForce()
	if d == nil {
		return 0, nil
	}
	roots, conflicts := c.options.planRoots(d, c.observeRoots())
	c.report(ctx, &c.rootEvents, d.table, conflicts)
	return applyEach(c, d, roots, func(r root) error { return c.applyRoot(ctx, r) })
}

// inForce is the latest decision; nil when there is none, or when the caches have other ConfigMaps than
// it was made from: the table loop will decide again and enqueue the other loops.
func (c *Controller) inForce() *decision {
	d := c.decision.Load()
	if d == nil {
		return nil
	}
	table := newest(c.caches.TargetsConfigMap(), d.table)
	if version(table) != version(d.table) || version(c.caches.PinnedConfigMap()) != version(d.pinned) {
		return nil
	}
	return d
}

// version is the uid and the resourceVersion of a ConfigMap, empty for nil.
func version(object *corev1.ConfigMap) string {
	if object == nil {
		return ""
	}
	return string(object.UID) + "/" + object.ResourceVersion
}

// observeRoots finds what is named like a root volume or root claim, by file system.
func (c *Controller) observeRoots() map[string]root {
	found := map[string]root{}
	edit := func(id string, set func(*root)) {
		r := found[id]
		set(&r)
		found[id] = r
	}
	for _, volume := range caches.All[*corev1.PersistentVolume](c.caches.Volumes) {
		if id, ok := rootID(volume.Name); ok {
			edit(id, func(r *root) { r.Volume = volume })
		}
	}
	for _, claim := range caches.All[*corev1.PersistentVolumeClaim](c.caches.Claims) {
		if id, ok := rootID(claim.Name); ok && claim.Namespace == c.options.Namespace {
			edit(id, func(r *root) { r.Claim = claim })
		}
	}
	for _, job := range caches.All[*batchv1.Job](c.caches.Jobs) {
		if id := deletable(job); id != "" {
			edit(id, func(r *root) { r.jobs = append(r.jobs, job) })
		}
	}
	return found
}

func rootID(name string) (id string, ok bool) {
	id, ok = strings.CutPrefix(name, wellknown.RootVolumePrefix)
	return id, ok && ports.CheckTargetID(id) == nil
}

// deletable is the file system of a Job that is over and whose outcome was used, "" for other Jobs.
func deletable(job *batchv1.Job) (fileSystemID string) {
	if job == nil || job.DeletionTimestamp != nil || mountjobs.IsUnreleased(job) || !mountjobs.IsOver(job) {
		return ""
	}
	name, err := mountjobs.Identify(job)
	if err != nil {
		return ""
	}
	return name.FileSystemID
}

// planRoots returns the roots to be changed, and notices of other owners' objects with the names of
// roots. A root of another installation is in both while its volume is not bound, because only the
// apiserver can say whether it is orphaned.
func (o Options) planRoots(d *decision, found map[string]root) (changed []root, conflicts []notice) {
	others := map[string][]string{} // file systems by namespace
	add := func(id string, port int, left bool) {
		r := found[id]
		r.FileSystemID, r.Namespace, r.Port, r.left = id, o.Namespace, port, left
		if !left {
			conflicts = append(conflicts, r.conflicts()...)
			if other := r.OtherInstallation(); other != "" {
				others[other] = append(others[other], id)
			}
		}
		if len(r.changes()) > 0 || len(r.protecting()) > 0 || r.mayBeOrphaned() {
			changed = append(changed, r)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.roots)) {
		if port := d.roots[id]; port != 0 {
			add(id, port, false)
		}
	}
	conflicts = append(conflicts, otherInstallations(others)...)
	if !d.removes {
		return changed, conflicts
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if _, known := d.roots[id]; !known {
			add(id, 0, true)
		}
	}
	return changed, conflicts
}

// changes are what to do now, in order; none where another owner's object is in the way. A root volume
// that is orphaned is repaired as one that was edited: it becomes this installation's.
func (r root) changes() []volumes.Change {
	switch {
	case len(r.conflicts()) > 0:
		return nil
	case r.left:
		return r.removal()
	case r.OtherInstallation() != "" && !r.orphaned:
		return nil
	}
	return r.Changes()
}

// mayBeOrphaned says that another installation has the volume and no claim that is bound to it.
func (r root) mayBeOrphaned() bool {
	return !r.left && r.OtherInstallation() != "" && r.Volume.Status.Phase != corev1.VolumeBound
}

// removal deletes the claim and, once it is gone, the volume. Both must have the class that no
// StorageClass has, and a volume must not be another installation's, which may still have the file
// system in its table.
func (r root) removal() []volumes.Change {
	const why = "its target has left the table"
	switch {
	case r.Claim != nil:
		if r.Claim.DeletionTimestamp == nil && volumes.ClassName(r.Claim) == wellknown.RootStorageClass {
			return []volumes.Change{{Action: volumes.DeleteClaim, Why: why}}
		}
	case r.Volume != nil && r.Volume.DeletionTimestamp == nil && r.Volume.Spec.StorageClassName == wellknown.RootStorageClass:
		if ref := r.Volume.Spec.ClaimRef; ref == nil || ref.Namespace == r.Namespace {
			return []volumes.Change{{Action: volumes.DeleteVolume, Why: why}}
		}
	}
	return nil
}

// protecting are the Jobs whose pods protect a claim that is to be deleted.
func (r root) protecting() []*batchv1.Job {
	if r.Claim == nil {
		return nil
	}
	deletes := func(change volumes.Change) bool { return change.Action == volumes.DeleteClaim }
	if r.Claim.DeletionTimestamp == nil && !slices.ContainsFunc(r.changes(), deletes) {
		return nil
	}
	return r.jobs
}

// conflicts are about objects that have a root's name, but neither its class, label nor binding. They
// may have a user's data, which a correction would delete. A root that was edited has at least one.
func (r root) conflicts() (conflicts []notice) {
	name := volumes.RootName(r.FileSystemID)
	if v := r.Volume; v != nil {
		ref := v.Spec.ClaimRef
		reserved := ref != nil && ref.Namespace == r.Namespace && ref.Name == name
		if !reserved && v.Spec.StorageClassName != wellknown.RootStorageClass && v.Labels[wellknown.LabelRootKey] != r.FileSystemID {
			conflicts = append(conflicts, rootConflict("PersistentVolume "+name, r.FileSystemID))
		}
	}
	if c := r.Claim; c != nil && c.Spec.VolumeName != name &&
		volumes.ClassName(c) != wellknown.RootStorageClass && c.Labels[wellknown.LabelRootKey] != r.FileSystemID {
		conflicts = append(conflicts, rootConflict(fmt.Sprintf("PersistentVolumeClaim %s/%s", r.Namespace, name), r.FileSystemID))
	}
	return conflicts
}

// applyRoot reads a root from the apiserver, plans again and writes.
func (c *Controller) applyRoot(ctx context.Context, r root) (err error) {
	name := volumes.RootName(r.FileSystemID)
	if r.Volume, r.Claim, err = objects.ReadPair(ctx, c.client, name, r.Namespace, name); err != nil {
		return err
	}
	if r.orphaned, err = c.isOrphaned(ctx, r); err != nil {
		return err
	}
	for _, job := range r.protecting() {
		if err := objects.DeleteJob(ctx, c.client, job, metav1.DeletePropagationBackground); err != nil {
			return err
		}
		c.options.Log.Info("finished job deleted", "job", job.Name, "reason", "RootClaimIsDeleted")
	}
	for _, change := range r.changes() {
		if err := objects.ApplyChange(ctx, c.client, r.Volume, r.Claim, change); err != nil {
			return fmt.Errorf("%s of file system %s: %w", change.Action, r.FileSystemID, err)
		}
		c.metrics.rootWrites.Inc()
		c.options.Log.Info("root volume changed", "fileSystem", r.FileSystemID, "action", change.String())
		if r.Volume != nil && !r.left && change.Action != volumes.CreateClaim {
			c.recordOn(r.Volume, wellknown.EventRootVolumeRepaired, change.String())
		}
	}
	return nil
}

// isOrphaned reads whether the other installation's namespace is gone. One that is being deleted gets no
// root claim any more.
func (c *Controller) isOrphaned(ctx context.Context, r root) (bool, error) {
	if !r.mayBeOrphaned() {
		return false, nil
	}
	name := r.OtherInstallation()
	found, err := objects.Reader{Client: c.client}.Namespaces(ctx, []string{name})
	return err == nil && (found[name] == nil || found[name].DeletionTimestamp != nil), err
}

// portChange is a volume as it is, and with the port that it should have.
type portChange struct {
	is, want   *corev1.PersistentVolume
	correction ports.Correction
}

func (c *Controller) syncPorts(ctx context.Context, _ string) (again time.Duration, err error) {
	d := c.inForce()
	if d == nil {
		return 0, nil
	}
	roots, _ := c.options.planRoots(d, c.observeRoots())
	changes := planPorts(d.corrections, c.caches.Volume, roots)
	return applyEach(c, d, changes, func(change portChange) error { return c.correct(ctx, change) })
}

// planPorts leaves out volumes that have changed since the decision, root volumes that are
// corrected as a whole, and volumes whose old annotation with mount options has the right port:
// kubelet reads no other options then.
func planPorts(corrections []ports.Correction, volume func(name string) *corev1.PersistentVolume, roots []root) []portChange {
	skipped := map[string]bool{}
	for _, r := range roots {
		skipped[volumes.RootName(r.FileSystemID)] = len(r.changes()) > 0
	}
	var changes []portChange
	for _, correction := range corrections {
		is := volume(correction.Volume)
		if is == nil || skipped[is.Name] {
			continue
		}
		if now := ports.VolumeOf(is); !now.Loopback || now.On != correction.On || now.Port != correction.From {
			continue
		}
		if want := is.DeepCopy(); volumes.SetPort(want, correction.To) {
			changes = append(changes, portChange{is: is, want: want, correction: correction})
		}
	}
	return changes
}

// correct writes the port that a volume must have; mounts that exist keep the old one.
func (c *Controller) correct(ctx context.Context, change portChange) error {
	if err := objects.PatchVolume(ctx, c.client, change.is, change.want); err != nil {
		return fmt.Errorf("correcting the port of volume %s: %w", change.is.Name, err)
	}
	c.metrics.corrections.Inc()
	why := change.correction
	c.options.Log.Warn("port corrected", "volume", change.is.Name, "fileSystem", why.On.FileSystem, "port", why.To, "message", why.Reason)
	c.recordOn(change.is, wellknown.EventPortCorrected, correctionMessage(why))
	return nil
}

func correctionMessage(c ports.Correction) string {
	from := fmt.Sprintf("port %d", c.From)
	if c.From == 0 {
		from = "no port"
	}
	return fmt.Sprintf("changed from %s to %d: %s; pods that use the volume since before must be restarted", from, c.To, c.Reason)
}
