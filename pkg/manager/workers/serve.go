package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// refusal is an error that the worker gets, with the code of the response. The worker repeats its
// request after StatusServiceUnavailable, and ends after all others.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(code int, format string, values ...any) error {
	return &refusal{code: code, text: fmt.Sprintf(format, values...)}
}

// errNotLeading ends the requests that wait, when the manager has lost its Lease or ends.
var errNotLeading = errors.New("this manager leads no longer")

// serve answers a request with the next batch, or after a while without content.
func (c *Channel) serve(w http.ResponseWriter, r *http.Request) {
	data, err := c.next(w, r)
	var refused *refusal
	switch {
	case err == nil && data == nil:
		w.WriteHeader(http.StatusNoContent)
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data) // if it is lost, the worker asks again
	case errors.As(err, &refused):
		c.options.Log.DebugContext(r.Context(), "request of a worker was refused", slog.String("address", r.RemoteAddr), slog.Any("err", err))
		c.refused.WithLabelValues(strconv.Itoa(refused.code)).Inc()
		w.Header().Set("Connection", "close")
		http.Error(w, refused.text, refused.code)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func (c *Channel) next(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Method != http.MethodPost || r.URL.Path != operations.PollPath {
		return nil, refuse(http.StatusNotFound, "want POST %s", operations.PollPath)
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return nil, refuse(http.StatusUnauthorized, "the request has no token")
	}
	job, err := c.identify(r.Context(), token) // before a report is held in memory
	if err != nil {
		return nil, err
	}
	message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, operations.MaxReportBytes))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "reading the report: %v", err)
	}
	batch, err := c.report(job, message)
	if err != nil {
		return nil, err
	}
	return c.await(r.Context(), job, batch)
}

// report records what a worker reports of its newest batch, once. Nothing else is accepted: a report has as
// many results as the batch has operations, and the manager acts on results by its own list of those.
func (c *Channel) report(job *batchv1.Job, message []byte) (batch int, err error) {
	batches, err := mountjobs.Batches(job)
	if err != nil {
		return 0, refuse(http.StatusConflict, "%v", err)
	}
	batch = operations.ReportedBatch(message)
	newest := batches[len(batches)-1]
	_, known := c.Reported(job.UID)[batch]
	switch {
	case known && (batch == newest.Number || batch == newest.Number-1):
		return batch, nil // repeated, because the answer was lost
	case batch != newest.Number:
		return 0, refuse(http.StatusConflict, "Job %s has batch %d now, and the report is of batch %d", job.Name, newest.Number, batch)
	}
	report, err := operations.DecodeReport(message, len(newest.Operations))
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "%v", err)
	}
	c.record(job, batch, report)
	c.onReport(job, batch)
	return batch, nil
}

func (c *Channel) record(job *batchv1.Job, batch int, report operations.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.workers[job.UID]
	if w == nil {
		w = &worker{}
		c.workers[job.UID] = w
	}
	reported := maps.Clone(w.reported) // Reported gives it away
	if reported == nil {
		reported = map[int]mountjobs.Reported{}
	}
	reported[batch] = mountjobs.Reported{Report: report, At: c.options.Now()}
	w.reported = reported
}

// await waits until the Job has a batch after the one that was reported. A later request of the same Job
// replaces this one.
func (c *Channel) await(ctx context.Context, job *batchv1.Job, reported int) ([]byte, error) {
	p := &poll{batch: reported, wake: make(chan struct{}, 1)}
	if !c.begin(job, p) {
		return nil, refuse(http.StatusConflict, "Job %s is over", job.Name)
	}
	defer c.end(job, p)
	p.notify() // the batch may be there already
	c.onWait(job)
	timer := time.NewTimer(operations.LongestPoll)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errNotLeading) {
				return nil, refuse(http.StatusGone, "%v", errNotLeading)
			}
			return nil, nil // the worker has waited for long enough, and nobody gets the answer
		case <-timer.C:
			return nil, nil
		case <-p.wake:
		}
		if why := c.refusal(job, p); why != "" {
			return nil, refuse(http.StatusConflict, "Job %s: %s", job.Name, why)
		}
		now := c.options.Caches.JobNamed(job.Namespace, job.Name)
		if now == nil || now.UID != job.UID {
			return nil, refuse(http.StatusConflict, "Job %s was deleted", job.Name)
		}
		if newest := mountjobs.NewestBatch(now); newest > reported {
			return []byte(now.Annotations[wellknown.AnnotationBatch(newest)]), nil
		}
	}
}

func (c *Channel) begin(job *batchv1.Job, p *poll) (begun bool) {
	c.with(job.UID, func(w *worker) {
		if w.poll != nil {
			w.poll.notify()
		}
		w.poll, begun = p, true
	})
	return begun
}

func (c *Channel) end(job *batchv1.Job, p *poll) {
	c.with(job.UID, func(w *worker) {
		if w.poll == p {
			w.poll = nil
		}
	})
}

// refusal returns why a request that waits gets nothing any more, or "".
func (c *Channel) refusal(job *batchv1.Job, p *poll) string {
	why := "another request waits"
	c.with(job.UID, func(w *worker) {
		if w.poll == p {
			why = p.ended
		}
	})
	return why
}
