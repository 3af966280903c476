package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// story is what became of a claim, and when; zero is not yet.
type story struct {
	created  time.Time // its creation was asked for
	asked    time.Time // the cluster asked the provisioner for a volume
	volume   time.Time // there is one
	bound    time.Time
	deleted  time.Time // its deletion was asked for
	released time.Time // the cluster released its volume
	gone     time.Time // its volume is no more
}

// jobStory is what became of a mount Job.
type jobStory struct {
	operations int
	created    time.Time // it was there
	ended      time.Time // the cluster said so; zero is not yet
}

// witness writes down when things happen, as they arrive through watches.
type witness struct {
	mu      sync.Mutex
	stories map[string]*story    // guarded by mu; by the claim's name
	jobs    map[string]*jobStory // guarded by mu; of mount Jobs
	leases  map[string]time.Time // guarded by mu; when each version of a Lease was
}

// watch begins to watch the claims of the team, and the Jobs and Leases of those who serve it.
func watch(ctx context.Context, client kubernetes.Interface) (*witness, error) {
	w := &witness{stories: map[string]*story{}, jobs: map[string]*jobStory{}, leases: map[string]time.Time{}}
	cluster := informers.NewSharedInformerFactory(client, 0)
	claims := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(team))
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(wellknown.Namespace))
	for _, watched := range []struct {
		informer cache.SharedIndexInformer
		seen     func(object any, gone bool)
	}{
		{claims.Core().V1().PersistentVolumeClaims().Informer(), w.sawClaim},
		{cluster.Core().V1().PersistentVolumes().Informer(), w.sawVolume},
		{own.Batch().V1().Jobs().Informer(), w.sawJob},
		{own.Coordination().V1().Leases().Informer(), w.sawLease},
	} {
		_, err := watched.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { watched.seen(object, false) },
			UpdateFunc: func(_, object any) { watched.seen(object, false) },
			DeleteFunc: func(object any) { watched.seen(object, true) },
		})
		if err != nil {
			return nil, fmt.Errorf("watching: %w", err)
		}
	}
	for _, factory := range []informers.SharedInformerFactory{cluster, claims, own} {
		factory.StartWithContext(ctx)
		if result := factory.WaitForCacheSyncWithContext(ctx); result.Err != nil {
			return nil, fmt.Errorf("watching: %w", result.Err)
		}
	}
	return w, nil
}

// of is the story of a claim; it needs mu.
func (w *witness) of(claim string) *story {
	s, ok := w.stories[claim]
	if !ok {
		s = &story{}
		w.stories[claim] = s
	}
	return s
}

// note has something written down about a claim.
func (w *witness) note(claim string, write func(*story)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	write(w.of(claim))
}

// first keeps the first time of something.
func first(at *time.Time) {
	if at.IsZero() {
		*at = time.Now()
	}
}

func (w *witness) sawClaim(object any, gone bool) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok || gone {
		return
	}
	w.note(claim.Name, func(s *story) {
		if claim.Annotations[wellknown.AnnotationStorageProvisioner] != "" {
			first(&s.asked)
		}
		if claim.Status.Phase == corev1.ClaimBound {
			first(&s.bound)
		}
	})
}

func (w *witness) sawVolume(object any, gone bool) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil {
		return
	}
	w.note(volume.Spec.ClaimRef.Name, func(s *story) {
		first(&s.volume)
		if volume.Status.Phase == corev1.VolumeReleased {
			first(&s.released)
		}
		if gone {
			first(&s.gone)
		}
	})
}

func (w *witness) sawJob(object any, gone bool) {
	job, ok := object.(*batchv1.Job)
	if !ok || gone || !strings.HasPrefix(job.Name, wellknown.MountJobPrefix) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.jobs[job.Name]
	if known == nil {
		operations, _ := mountjobs.Operations(job) // none can be read of a Job that is none of ours
		known = &jobStory{operations: len(operations), created: time.Now()}
		w.jobs[job.Name] = known
	}
	if job.Status.CompletionTime != nil {
		first(&known.ended)
	}
}

func (w *witness) sawLease(object any, _ bool) {
	if lease, ok := object.(*coordinationv1.Lease); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.leases[lease.ResourceVersion] = time.Now()
	}
}

// leaseWrites is how often Leases were written since a time.
func (w *witness) leaseWrites(since time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, at := range w.leases {
		if at.After(since) {
			n++
		}
	}
	return n
}

// jobAfter is when the first mount Job after a time was there; zero if there is none.
func (w *witness) jobAfter(t time.Time) time.Time {
	if all := w.jobsAfter(t); len(all) > 0 {
		return all[0].created
	}
	return time.Time{}
}

// jobsAfter are the mount Jobs after a time, in order.
func (w *witness) jobsAfter(t time.Time) []jobStory {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []jobStory
	for _, job := range w.jobs {
		if job.created.After(t) {
			all = append(all, *job)
		}
	}
	slices.SortFunc(all, func(a, b jobStory) int { return a.created.Compare(b.created) })
	return all
}

// read gives the stories of claims as they are now.
func (w *witness) read(claims []string) []story {
	w.mu.Lock()
	defer w.mu.Unlock()
	stories := make([]story, len(claims))
	for i, claim := range claims {
		stories[i] = *w.of(claim)
	}
	return stories
}

// await waits until something has happened to each of the claims, and gives their stories. What
// happened when does not depend on when this looks.
func (w *witness) await(ctx context.Context, what string, claims []string, happened func(story) bool) ([]story, error) {
	served := 0 // of the first claims, which need not be read again
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for served < len(claims) && happened(*w.of(claims[served])) {
			served++
		}
		return served == len(claims), nil
	})
	stories := w.read(claims)
	if err != nil {
		missing := len(slices.DeleteFunc(stories, happened))
		return nil, fmt.Errorf("waiting until %s: %d of %d claims are missing: %w", what, missing, len(claims), context.Cause(ctx))
	}
	return stories, nil
}

func isBound(s story) bool { return !s.bound.IsZero() }

func isGone(s story) bool { return !s.gone.IsZero() }
