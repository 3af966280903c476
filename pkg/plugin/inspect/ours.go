package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
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

// Locate is Gather for the manager and the table only.
func Locate(ctx context.Context, client kubernetes.Interface, o Options) (*Snapshot, error) {
	g := gatherer{client: client, options: o, snapshot: &Snapshot{}}
	for _, step := range []func(context.Context) error{g.installation, g.programs, g.table} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	g.snapshot.Now = o.Now()
	return g.snapshot, nil
}

// FileSystems are the ids in the table. The error says why it cannot be read.
func (s *Snapshot) FileSystems() ([]string, error) {
	switch {
	case s.lacks("configmaps"):
		return nil, fmt.Errorf("you have no right to read ConfigMap %s in namespace %s", wellknown.TargetsConfigMap, s.Namespace)
	case s.Table == nil:
		return nil, fmt.Errorf("there is no ConfigMap %s in namespace %s: name the installation's with --system-namespace", wellknown.TargetsConfigMap, s.Namespace)
	}
	table, _, err := ports.DecodeLenient([]byte(s.Table.Data[wellknown.TargetsKey]))
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", wellknown.TargetsConfigMap, err)
	}
	return slices.Sorted(maps.Keys(table.Targets)), nil
}

// JobSettings are those that the manager has for its Jobs. An image that is not "" replaces the manager's.
func (s *Snapshot) JobSettings(image string) (mountjobs.Settings, error) {
	settings := mountjobs.Settings{Namespace: s.Namespace, Image: image}
	if image == "" {
		settings.Image = setting(s.Manager, "--worker-image", "WORKER_IMAGE")
	}
	if settings.Image == "" {
		return settings, errors.New("the image of mount Jobs is not in the manager's Deployment, or you have no right to read it: name it with --worker-image")
	}
	settings.ImagePullPolicy = corev1.PullPolicy(setting(s.Manager, "--worker-image-pull-policy", ""))
	if names := setting(s.Manager, "--worker-image-pull-secrets", ""); names != "" {
		settings.ImagePullSecrets = strings.Split(names, ",")
	}
	var errs [2]error
	settings.Tolerations, errs[0] = mountjobs.ParseTolerations(setting(s.Manager, "--worker-tolerations", ""))
	settings.NodeSelector, errs[1] = mountjobs.ParseNodeSelector(setting(s.Manager, "--worker-node-selector", ""))
	if err := errors.Join(errs[:]...); err != nil {
		return settings, fmt.Errorf("reading the settings of the manager's Deployment: %w", err)
	}
	if timeout, err := time.ParseDuration(setting(s.Manager, "--mount-job-timeout", "")); err == nil {
		settings.Timeout = timeout
	}
	return settings, nil
}

// Aliases are the ids that a file system may carry as a copy of another.
func (s *Snapshot) Aliases(fileSystem string) []string {
	var old []string
	for item := range strings.SplitSeq(setting(s.Manager, "--file-system-aliases", ""), ",") {
		if fresh, id, _ := strings.Cut(strings.TrimSpace(item), "="); fresh == fileSystem {
			old = append(old, id)
		}
	}
	return old
}
