package background

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// Log records how far the log of a Job was read.
type Log struct {
	// Next is when to read it next, and Wait how long it was from the time before to that.
	Next time.Time
	Wait time.Duration
	// After is the path of the last volume that a survey has counted.
	After string
	// Reading says that it is being read, Drained that it was read to its end, and Unreadable that it could not
	// be for long.
	Reading, Drained, Unreadable bool

	read    time.Time // the last time
	failing time.Time // since when it cannot be read, of a Job that has ended; zero if it can
}

const (
	// readInterval is the time between two reads of the log of a Job that runs: if its pod is killed, and
	// its log lost, no more than this is counted again.
	readInterval = 30 * time.Second
	// readRetry separates two attempts to read a log; readTries bounds them once its Job has ended.
	readRetry = 5 * time.Second
	readTries = 2 * time.Minute
	// logOverlap is more than what a log may lose at the begin of a span of time.
	logOverlap = 10 * time.Second
	// logTimeout bounds one read of a survey's log, and maxLogBytes is more than a survey writes.
	logTimeout  = time.Minute
	maxLogBytes = 8 << 20

	// FirstProgress is after how long it is first reported how far a clone is. The time doubles from there up
	// to lastProgress: client-go writes few events about an object.
	FirstProgress = 10 * time.Second
	lastProgress  = 5 * time.Minute
	// ProgressTimeout bounds the read of a clone's log, of which the last lines are enough.
	ProgressTimeout  = 10 * time.Second
	progressLines    = 20
	maxProgressBytes = 64 << 10
)

// Logs reads the logs of Jobs. It remembers how far until a Job is forgotten.
type Logs struct {
	Client    kubernetes.Interface
	Namespace string

	jobs sync.Map // of Log, by the uid of the Job
}

// Of returns what was read of a Job's log. A survey begins after the volumes that were counted before it.
func (l *Logs) Of(job types.UID, annotations map[string]string) Log {
	known, ok := l.jobs.Load(job)
	log, _ := known.(Log)
	if !ok {
		log.After = mountjobs.SurveyRecordOf(annotations).After
	}
	return log
}

// Forget drops what is known of a Job that was released.
func (l *Logs) Forget(job types.UID) { l.jobs.Delete(job) }

// BeginProgress begins a read of the log of a clone, and returns how long it is until the next one.
func (l *Logs) BeginProgress(job types.UID, now time.Time) time.Duration {
	log := l.Of(job, nil)
	log.Wait = min(max(2*log.Wait, FirstProgress), lastProgress) // longer than the read may take
	log.Next = now.Add(log.Wait)
	l.jobs.Store(job, log)
	return log.Wait
}

// Begin begins a read of the log of a survey, which Counted ends.
func (l *Logs) Begin(job *Job) {
	log := job.Log
	log.Reading = true
	l.jobs.Store(job.Job.UID, log)
}

// Progress returns how far a clone is, by the last line of its log that says so; ok is false without one.
func (l *Logs) Progress(ctx context.Context, pod string) (found operations.CloneProgress, ok bool, err error) {
	options := corev1.PodLogOptions{TailLines: new(int64(progressLines))}
	err = l.eachLine(ctx, ProgressTimeout, pod, options, maxProgressBytes, func(text []byte) {
		if line, err := operations.DecodeCloneProgress(text); err == nil {
			found, ok = line, true
		}
	})
	if apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
		err = nil // its container has not started, or its pod is gone
	}
	return found, ok, err
}

// Counted returns the volumes that a survey has logged since its log was read last. Other lines are for people.
func (l *Logs) Counted(ctx context.Context, job *Job, now time.Time) (counted []operations.Usage, err error) {
	log := job.Log
	if counted, err = l.since(ctx, job.Outcome.Pod, log.read, now); len(counted) > 0 {
		log.After = counted[len(counted)-1].Path
	}
	ended := !job.Outcome.HoldsFileSystem()
	if !ended && apierrors.IsBadRequest(err) {
		err = nil // its container has not started
	}
	if n := job.Outcome.Task.Counted; err == nil && ended && n > 0 && log.After == mountjobs.SurveyRecordOf(job.Job.Annotations).After {
		err = fmt.Errorf("the log of pod %s has none of the volumes that it counted, which are %d", job.Outcome.Pod, n)
	}
	switch {
	case err == nil:
		log.read, log.Next, log.failing, log.Drained = now, now.Add(readInterval), time.Time{}, ended
	case ended:
		if log.Next = now.Add(readRetry); log.failing.IsZero() {
			log.failing = now
		}
		log.Unreadable = now.Sub(log.failing) > readTries
	default:
		log.Next = now.Add(readRetry)
	}
	l.jobs.Store(job.Job.UID, log)
	if apierrors.IsNotFound(err) { // the cache is behind: its pod is gone
		err = nil
	}
	return counted, err
}

func (l *Logs) since(ctx context.Context, pod string, read, now time.Time) (counted []operations.Usage, err error) {
	var options corev1.PodLogOptions
	if !read.IsZero() {
		options.SinceSeconds = new(int64((now.Sub(read) + logOverlap) / time.Second))
	}
	err = l.eachLine(ctx, logTimeout, pod, options, maxLogBytes, func(text []byte) {
		if usage, err := operations.DecodeUsage(text); err == nil {
			counted = append(counted, usage)
		}
	})
	return counted, err
}

func (l *Logs) eachLine(
	ctx context.Context, timeout time.Duration, pod string, options corev1.PodLogOptions, limit int64, each func([]byte),
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	options.Container = mountjobs.ContainerName
	log, err := l.Client.CoreV1().Pods(l.Namespace).GetLogs(pod, &options).Stream(ctx)
	if err != nil {
		return fmt.Errorf("reading the log of pod %s: %w", pod, err)
	}
	defer log.Close()
	lines := bufio.NewScanner(io.LimitReader(log, limit))
	for lines.Scan() {
		each(lines.Bytes())
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("reading the log of pod %s: %w", pod, err)
	}
	return nil
}
