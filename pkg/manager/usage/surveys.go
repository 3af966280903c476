package usage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// progress is what was read of the logs of survey Jobs.
type progress struct {
	mu   sync.Mutex
	jobs map[types.UID]jobProgress // guarded by mu
}

type jobProgress struct {
	after    string    // the last path
	read     time.Time // the last time
	drained  bool      // after the Job's end
	failing  time.Time // since when it cannot be read; zero if it can
	wasEnded bool      // at that time
}

func (p *progress) of(job types.UID) (jobProgress, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	is, ok := p.jobs[job]
	return is, ok
}

func (p *progress) set(job types.UID, is jobProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jobs == nil {
		p.jobs = map[types.UID]jobProgress{}
	}
	p.jobs[job] = is
}

func (p *progress) forget(job types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.jobs, job)
}

// syncFileSystem plans for one file system and applies the plan.
func (c *Controller) syncFileSystem(ctx context.Context, id string) (again time.Duration, err error) {
	s := c.observe(id)
	return c.apply(ctx, s, planFor(s))
}

func (c *Controller) observe(id string) state {
	g := c.gatherer
	s := state{id: id, now: g.Now(), named: g.Caches.JobsOfFileSystem(id), interval: c.options.Interval}
	namespace, name := c.options.Jobs.Namespace, volumes.RootName(id)
	s.root = g.Caches.ClaimNamed(namespace, name)
	for _, job := range caches.All[*batchv1.Job](g.Caches.Jobs) {
		name, err := mountjobs.Identify(job)
		switch {
		case err != nil || name.Kind != mountjobs.Survey:
		case name.FileSystemID != id:
			if !mountjobs.IsOver(job) {
				s.others++
			}
		case mountjobs.IsUnreleased(job):
			c.observeSurvey(&s, job)
		}
	}
	slices.SortFunc(s.surveys, func(a, b surveyJob) int { return a.outcome.Name.Number - b.outcome.Name.Number })
	targets := g.Targets()
	s.notReady = volumes.RootPair{FileSystemID: id, Port: targets.Port(id), Namespace: namespace, Volume: g.Caches.Volume(name), Claim: s.root}.Ready()
	_, s.listed = targets.FileSystems[id]
	return s
}

func (c *Controller) observeSurvey(s *state, job *batchv1.Job) {
	pods := c.gatherer.Caches.PodsOfJob(job)
	outcome, err := c.gatherer.Survey(job, pods)
	if err != nil {
		return
	}
	survey := surveyJob{job: job, outcome: outcome, stuck: mountjobs.CannotStart(s.root, pods), after: mountjobs.SurveyRecordOf(job.Annotations).After}
	if p, ok := c.progress.of(job.UID); ok {
		survey.after, survey.read, survey.drained = p.after, p.read, p.drained
		survey.unreadable = p.wasEnded && !p.failing.IsZero() && s.now.Sub(p.failing) > readTries
	}
	s.surveys = append(s.surveys, survey)
}

// apply is the only writer of file systems' surveys.
func (c *Controller) apply(ctx context.Context, s state, p plan) (again time.Duration, err error) {
	if !p.again.IsZero() {
		again = max(p.again.Sub(s.now), 0) + time.Second
	}
	switch change := p.change.(type) {
	case readLog:
		return time.Second, c.readLog(ctx, s, change.survey)
	case recordSurvey:
		if !change.next.Ended.IsZero() && c.claims.Len() > 0 {
			return time.Second, nil // a client that waits for the end of a survey reads claims then
		}
		return time.Second, c.record(ctx, s, change)
	case endSurvey:
		return again, c.end(ctx, change.job)
	case deleteSurvey:
		return 0, c.delete(ctx, change.job)
	case createSurvey:
		return 0, c.create(ctx, s, change.next)
	}
	return again, nil
}

func (c *Controller) create(ctx context.Context, s state, next mountjobs.SurveyRecord) error {
	job, err := mountjobs.BuildSurvey(mountjobs.Spec{
		Settings: c.options.Jobs, FileSystemID: s.id, Aliases: c.gatherer.Aliases[s.id],
		Number: mountjobs.NextNumber(mountjobs.Survey, s.id, s.named),
	}, next)
	if err != nil {
		return fmt.Errorf("file system %s: %w", s.id, err)
	}
	created, err := objects.CreateJob(ctx, c.client, job)
	if !created {
		return err
	}
	c.options.Log.InfoContext(ctx, "survey Job created", slog.String("job", job.Name), slog.String("fileSystem", s.id))
	return nil
}

func (c *Controller) end(ctx context.Context, job *batchv1.Job) error {
	ended, err := objects.EndJob(ctx, c.client, job, time.Second)
	if ended {
		c.options.Log.InfoContext(ctx, "survey Job ended", slog.String("job", job.Name), slog.String("reason", "RootClaimLost"))
	}
	return err
}

func (c *Controller) delete(ctx context.Context, job *batchv1.Job) error {
	if err := objects.DeleteJob(ctx, c.client, job, metav1.DeletePropagationBackground); err != nil {
		return err
	}
	if err := c.release(ctx, job); err != nil { // last: a Job that is released is not looked at again
		return err
	}
	c.options.Log.InfoContext(ctx, "survey Job deleted", slog.String("job", job.Name), slog.String("reason", "FileSystemGone"))
	return nil
}

func (c *Controller) release(ctx context.Context, job *batchv1.Job) error {
	if err := objects.RemoveFinalizer(ctx, c.client, job, wellknown.FinalizerOutcome); err != nil {
		return err
	}
	c.progress.forget(job.UID)
	return nil
}

// record writes how far the survey is, so that the next Job, or the next leader's, continues there.
func (c *Controller) record(ctx context.Context, s state, r recordSurvey) error {
	if s.root != nil {
		err := objects.Patch(ctx, c.client, s.root, objects.Metadata("annotations", map[string]string{wellknown.AnnotationSurvey: r.next.Encode()}))
		if err != nil {
			return err
		}
		if r.failed != "" {
			c.options.Events.Event(s.root, corev1.EventTypeWarning, wellknown.EventSurveyFailed,
				fmt.Sprintf("Job %s has counted no volume: %s", r.job.Name, r.failed))
		}
	}
	if !r.next.Ended.IsZero() {
		c.options.Log.InfoContext(ctx, "survey finished", slog.String("fileSystem", s.id), slog.Duration("duration", r.next.Ended.Sub(r.next.Began)))
	}
	return c.release(ctx, r.job)
}

const (
	// logOverlap is more than what a log may lose at the begin of a span of time.
	logOverlap = 10 * time.Second
	// maxLogBytes is more than a survey writes.
	maxLogBytes = 8 << 20
	// logTimeout bounds one read of a log.
	logTimeout = time.Minute
)

// readLog takes what a Job has counted since its log was read last.
func (c *Controller) readLog(ctx context.Context, s state, survey *surveyJob) error {
	was, _ := c.progress.of(survey.job.UID)
	ended := !survey.outcome.HoldsFileSystem()
	now := jobProgress{after: survey.after, read: s.now, drained: ended, wasEnded: ended}
	since := time.Duration(0)
	if !was.read.IsZero() {
		since = s.now.Sub(was.read) + logOverlap
	}
	counted, err := c.counted(ctx, survey.outcome.Pod, since)
	if !ended && apierrors.IsBadRequest(err) {
		err = nil // its container has not started
	}
	if n := len(counted); n > 0 {
		now.after = counted[n-1].Path
		c.measurements.add(s.id, counted, s.now)
		c.enqueueCounted(s.id, counted)
	}
	if err == nil && ended && survey.outcome.Volumes > 0 && now.after == mountjobs.SurveyRecordOf(survey.job.Annotations).After {
		err = fmt.Errorf("the log of pod %s has none of the volumes that it counted, which are %d", survey.outcome.Pod, survey.outcome.Volumes)
	}
	if err != nil {
		now.read, now.drained, now.failing = was.read, false, was.failing
		if now.failing.IsZero() || !was.wasEnded {
			now.failing = s.now
		}
	}
	c.progress.set(survey.job.UID, now)
	if apierrors.IsNotFound(err) { // the cache is behind: its pod is gone
		return nil
	}
	return err
}

// counted are the volumes in a pod's log, whose other lines are for people.
func (c *Controller) counted(ctx context.Context, pod string, since time.Duration) (counted []operations.Usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	log, err := c.options.Logs(ctx, pod, since)
	if err != nil {
		return nil, fmt.Errorf("reading the log of pod %s: %w", pod, err)
	}
	defer log.Close()
	lines := bufio.NewScanner(io.LimitReader(log, maxLogBytes))
	for lines.Scan() {
		if usage, err := operations.DecodeUsage(lines.Bytes()); err == nil {
			counted = append(counted, usage)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return counted, fmt.Errorf("reading the log of pod %s: %w", pod, err)
	}
	return counted, nil
}

func (c *Controller) podLog(ctx context.Context, pod string, since time.Duration) (io.ReadCloser, error) {
	options := &corev1.PodLogOptions{Container: mountjobs.ContainerName}
	if since > 0 {
		seconds := int64(since / time.Second)
		options.SinceSeconds = &seconds
	}
	return c.client.CoreV1().Pods(c.options.Jobs.Namespace).GetLogs(pod, options).Stream(ctx)
}

// enqueueCounted enqueues the claims whose directories were counted.
func (c *Controller) enqueueCounted(fileSystemID string, counted []operations.Usage) {
	paths, changed := map[string]bool{}, map[string]bool{}
	for _, usage := range counted {
		changed[usage.Path] = true
	}
	for _, volume := range c.gatherer.Caches.VolumesOnFileSystem(fileSystemID) {
		_, path, _ := caches.DirectoryOf(volume)
		paths[path] = true
		if ref := volume.Spec.ClaimRef; ref != nil && changed[path] {
			c.claims.Add(cache.ObjectName{Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	c.measurements.keepOnly(fileSystemID, paths)
}
