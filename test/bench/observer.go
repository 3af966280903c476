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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// claimTimes are when something happened to a claim; zero is not yet.
type claimTimes struct {
	created  time.Time // its creation was requested
	asked    time.Time // the cluster asked the provisioner for a volume
	begun    time.Time // a mount Job has an operation of it
	volume   time.Time // it exists
	bound    time.Time
	deleted  time.Time // its deletion was requested
	released time.Time // the cluster released its volume
	gone     time.Time // its volume is deleted
}

// jobTimes are when something happened to a mount Job.
type jobTimes struct {
	created time.Time // it was first observed
	ended   time.Time // it has completed, failed or was deleted; zero is not yet
	batches []batchTimes
}

// batchTimes is a batch of operations that a Job was created with, or that its worker was given later.
type batchTimes struct {
	number     int
	operations int
	at         time.Time // it was first observed
}

// since is the Job without the batches it had at a time.
func (j jobTimes) since(t time.Time) jobTimes {
	j.batches = slices.DeleteFunc(slices.Clone(j.batches), func(b batchTimes) bool { return !b.at.After(t) })
	return j
}

// observer records when objects change, as watches report it.
type observer struct {
	mu     sync.Mutex
	times  map[string]*claimTimes            // guarded by mu; by the claim's name
	jobs   map[string]*jobTimes              // guarded by mu; of mount Jobs
	leases map[string]time.Time              // guarded by mu; when each version of a Lease was
	asked  func(claim string, uid types.UID) // guarded by mu; called when the cluster asks for a claim's volume, if set
}

// watch begins to watch claims, volumes, and the Jobs and Leases of the provisioner.
func watch(ctx context.Context, client kubernetes.Interface) (*observer, error) {
	o := &observer{times: map[string]*claimTimes{}, jobs: map[string]*jobTimes{}, leases: map[string]time.Time{}}
	cluster := informers.NewSharedInformerFactory(client, 0)
	claims := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(team))
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(wellknown.Namespace))
	for _, watched := range []struct {
		informer cache.SharedIndexInformer
		seen     func(object any, gone bool)
	}{
		{claims.Core().V1().PersistentVolumeClaims().Informer(), o.observeClaim},
		{cluster.Core().V1().PersistentVolumes().Informer(), o.observeVolume},
		{own.Batch().V1().Jobs().Informer(), o.observeJob},
		{own.Coordination().V1().Leases().Informer(), o.observeLease},
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
	return o, nil
}

// timesOf returns the times of a claim; it needs mu.
func (o *observer) timesOf(claim string) *claimTimes {
	s, ok := o.times[claim]
	if !ok {
		s = &claimTimes{}
		o.times[claim] = s
	}
	return s
}

// record changes the times of a claim.
func (o *observer) record(claim string, write func(*claimTimes)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	write(o.timesOf(claim))
}

// setOnce sets a time to now, unless it is set.
func setOnce(at *time.Time) {
	if at.IsZero() {
		*at = time.Now()
	}
}

func (o *observer) observeClaim(object any, gone bool) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok || gone {
		return
	}
	var asked func(string, types.UID)
	o.record(claim.Name, func(s *claimTimes) {
		if claim.Annotations[wellknown.AnnotationStorageProvisioner] != "" && s.asked.IsZero() {
			s.asked, asked = time.Now(), o.asked
		}
		if claim.Status.Phase == corev1.ClaimBound {
			setOnce(&s.bound)
		}
	})
	if asked != nil {
		asked(claim.Name, claim.UID)
	}
}

// whenAsked has a function called for each claim whose volume the cluster asks for from now on.
func (o *observer) whenAsked(call func(claim string, uid types.UID)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = call
}

func (o *observer) observeVolume(object any, gone bool) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil {
		return
	}
	o.record(volume.Spec.ClaimRef.Name, func(s *claimTimes) {
		setOnce(&s.volume)
		if volume.Status.Phase == corev1.VolumeReleased {
			setOnce(&s.released)
		}
		if gone {
			setOnce(&s.gone)
		}
	})
}

func (o *observer) observeJob(object any, gone bool) {
	job, ok := object.(*batchv1.Job)
	if !ok || !strings.HasPrefix(job.Name, wellknown.MountJobPrefix) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.jobs[job.Name]
	if known == nil {
		known = &jobTimes{created: time.Now()}
		o.jobs[job.Name] = known
	}
	o.addBatches(known, job)
	if gone || mountjobs.IsOver(job) {
		setOnce(&known.ended)
	}
}

// addBatches adds the batches that a Job did not have before; it needs mu. The manager removes each
// from the Job when nothing more follows from it.
func (o *observer) addBatches(known *jobTimes, job *batchv1.Job) {
	newest := 0
	if n := len(known.batches); n > 0 {
		newest = known.batches[n-1].number
	}
	if newest >= mountjobs.NewestBatch(job) {
		return
	}
	batches, _ := mountjobs.Batches(job) // a Job that cannot be read is not the manager's
	for _, batch := range batches {
		if batch.Number <= newest {
			continue
		}
		known.batches = append(known.batches, batchTimes{batch.Number, len(batch.Operations), time.Now()})
		for _, operation := range batch.Operations {
			setOnce(&o.timesOf(operation.Claim).begun)
		}
	}
}

func (o *observer) observeLease(object any, _ bool) {
	if lease, ok := object.(*coordinationv1.Lease); ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.leases[lease.ResourceVersion] = time.Now()
	}
}

// leaseWrites is how often Leases were written since a time.
func (o *observer) leaseWrites(since time.Time) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, at := range o.leases {
		if at.After(since) {
			n++
		}
	}
	return n
}

// jobsAfter returns the mount Jobs that got batches after a time, with those batches alone, by their creation.
func (o *observer) jobsAfter(t time.Time) []jobTimes {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []jobTimes
	for _, job := range o.jobs {
		if later := job.since(t); len(later.batches) > 0 {
			all = append(all, later)
		}
	}
	slices.SortFunc(all, func(a, b jobTimes) int { return a.created.Compare(b.created) })
	return all
}

// ranAfter returns how many mount Jobs ran at a time or have begun since.
func (o *observer) ranAfter(t time.Time) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, job := range o.jobs {
		if job.ended.IsZero() || job.ended.After(t) {
			n++
		}
	}
	return n
}

// read returns the times of claims as they are now.
func (o *observer) read(claims []string) []claimTimes {
	o.mu.Lock()
	defer o.mu.Unlock()
	times := make([]claimTimes, len(claims))
	for i, claim := range claims {
		times[i] = *o.timesOf(claim)
	}
	return times
}

// await waits until something has happened to each of the claims, and returns their times,
// which do not depend on the interval of its polls.
func (o *observer) await(ctx context.Context, what string, claims []string, happened func(claimTimes) bool) ([]claimTimes, error) {
	served := 0 // of the first claims, which need not be read again
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		for served < len(claims) && happened(*o.timesOf(claims[served])) {
			served++
		}
		return served == len(claims), nil
	})
	times := o.read(claims)
	if err != nil {
		missing := len(slices.DeleteFunc(times, happened))
		return nil, fmt.Errorf("waiting until %s: %d of %d claims are missing: %w", what, missing, len(claims), context.Cause(ctx))
	}
	return times, nil
}

func isBound(s claimTimes) bool { return !s.bound.IsZero() }

func isGone(s claimTimes) bool { return !s.gone.IsZero() }
