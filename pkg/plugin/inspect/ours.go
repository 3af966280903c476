package inspect

import (
	"cmp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// PodsByPart are the installation's pods: of the manager, of mount Jobs and sweeps, and of node agents.
func (s *Snapshot) PodsByPart() (managers, workers, agents []*corev1.Pod) {
	jobs := map[types.UID]bool{}
	for _, job := range s.OurJobs() {
		jobs[job.UID] = true
	}
	for _, pod := range s.Pods {
		owner := metav1.GetControllerOf(pod)
		switch {
		case isAgent(pod):
			agents = append(agents, pod)
		case owner != nil && jobs[owner.UID]:
			workers = append(workers, pod)
		case pod.Labels[wellknown.LabelProgram] == wellknown.ProgramManager:
			managers = append(managers, pod)
		}
	}
	return managers, workers, agents
}

// OurPods are those of PodsByPart.
func (s *Snapshot) OurPods() []*corev1.Pod {
	managers, workers, agents := s.PodsByPart()
	return slices.Concat(managers, workers, agents)
}

// OurJobs are mount Jobs and sweep Jobs.
func (s *Snapshot) OurJobs() []*batchv1.Job {
	return slices.DeleteFunc(slices.Clone(s.Jobs), func(job *batchv1.Job) bool {
		_, err := mountjobs.Identify(job)
		return err != nil
	})
}

// OurClaims are those of the provisioner, of SharedVolumes and of file systems' roots. Those that are not
// bound come first.
func (s *Snapshot) OurClaims() []*corev1.PersistentVolumeClaim {
	f := derive(s)
	all := slices.DeleteFunc(slices.Clone(s.Claims), func(claim *corev1.PersistentVolumeClaim) bool {
		_, shared := claim.Annotations[wellknown.AnnotationSharedVolume]
		return !shared && !f.isClaimOurs(claim) && !f.isRoot(claim)
	})
	slices.SortStableFunc(all, func(a, b *corev1.PersistentVolumeClaim) int {
		return cmp.Compare(rank(a.Status.Phase == corev1.ClaimBound), rank(b.Status.Phase == corev1.ClaimBound))
	})
	return all
}

// OurVolumes are those of OurClaims, and those that were released. Those that are not bound come first.
func (s *Snapshot) OurVolumes() []*corev1.PersistentVolume {
	all := slices.DeleteFunc(slices.Clone(s.Volumes), func(volume *corev1.PersistentVolume) bool {
		_, shared := volume.Annotations[wellknown.AnnotationSharedVolume]
		return !shared && volumes.Read(volume, s.Provisioner).Kind == volumes.Foreign
	})
	slices.SortStableFunc(all, func(a, b *corev1.PersistentVolume) int {
		return cmp.Compare(rank(a.Status.Phase == corev1.VolumeBound), rank(b.Status.Phase == corev1.VolumeBound))
	})
	return all
}

func rank(isBound bool) int {
	if isBound {
		return 1
	}
	return 0
}

// OurClasses are those of the provisioner.
func (s *Snapshot) OurClasses() []*storagev1.StorageClass {
	return slices.DeleteFunc(slices.Clone(s.Classes), func(class *storagev1.StorageClass) bool { return class.Provisioner != s.Provisioner })
}

// OurEvents are those that manager and agents wrote, and those about the objects above, nodes and the
// installation's namespace. The newest come first.
func (s *Snapshot) OurEvents() []*corev1.Event {
	about := map[eventKey]bool{}
	for _, claim := range s.OurClaims() {
		about[eventKey{"PersistentVolumeClaim", claim.Namespace, claim.Name}] = true
	}
	for _, volume := range s.OurVolumes() {
		about[eventKey{"PersistentVolume", "", volume.Name}] = true
	}
	var all []*corev1.Event
	for i, event := range s.Events {
		object := event.InvolvedObject
		if isOurs(event) || object.Namespace == s.Namespace || object.Kind == "Node" || about[eventKey{object.Kind, object.Namespace, object.Name}] {
			all = append(all, &s.Events[i])
		}
	}
	slices.SortStableFunc(all, func(a, b *corev1.Event) int { return LastSeen(*b).Compare(LastSeen(*a)) })
	return all
}
