package workers

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		w = &worker{reported: map[int]mountjobs.Reported{}}
		c.workers[job.UID] = w
	}
	w.reported = maps.Clone(w.reported) // Reported gives it away
	w.reported[batch] = mountjobs.Reported{Report: report, At: c.options.Now()}
}

// await waits until the Job has a batch after the one that was reported. A later request of the Job replaces this one.
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

func (c *Channel) refusal(job *batchv1.Job, p *poll) string {
	why := "another request waits"
	c.with(job.UID, func(w *worker) {
		if w.poll == p {
			why = p.ended
		}
	})
	return why
}

type review struct {
	name string
	uid  types.UID
}

const (
	// reviewLife is how long the apiserver's answer about a token is used: a worker asks a few times a
	// minute. A pod that is gone has no Job that runs, whatever its token says.
	reviewLife   = 2 * time.Minute
	reviewTime   = 5 * time.Second
	knownReviews = 1024
)

// Keys of the apiserver's answer about a token that is bound to a pod.
const (
	extraPodName = "authentication.kubernetes.io/pod-name"
	extraPodUID  = "authentication.kubernetes.io/pod-uid"
)

// identify returns the running mount Job whose pod a token is bound to. Anything that reaches the port may send
// a token, so only one that names the pod of such a Job costs a review.
func (c *Channel) identify(ctx context.Context, token string) (*batchv1.Job, error) {
	claimed, err := c.claimedPod(token)
	if err != nil {
		return nil, err
	}
	if _, err := c.jobOf(claimed); err != nil {
		return nil, err
	}
	pod, err := c.review(ctx, token)
	if err != nil {
		return nil, err
	}
	return c.jobOf(pod)
}

// claimedPod reads what a token says of itself. Nothing proves that.
func (c *Channel) claimedPod(token string) (pod review, err error) {
	var claims struct {
		Audience   audiences `json:"aud"`
		Subject    string    `json:"sub"`
		Kubernetes struct {
			Pod struct {
				Name string    `json:"name"`
				UID  types.UID `json:"uid"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return review{}, refuse(http.StatusUnauthorized, "the token is not one of a service account")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	switch want := username(c.options.Namespace); {
	case err != nil:
		return review{}, refuse(http.StatusUnauthorized, "the token is not one of a service account: %v", err)
	case !slices.Contains(claims.Audience, wellknown.WorkerAudience):
		return review{}, refuse(http.StatusUnauthorized, "the token is not for %s", wellknown.WorkerAudience)
	case claims.Subject != want:
		return review{}, refuse(http.StatusForbidden, "the token is of %q, want %s", claims.Subject, want)
	case claims.Kubernetes.Pod.Name == "":
		return review{}, refuse(http.StatusForbidden, "the token is bound to no pod")
	}
	return review{name: claims.Kubernetes.Pod.Name, uid: claims.Kubernetes.Pod.UID}, nil
}

// audiences are one text, or a list of them.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

func (c *Channel) jobOf(pod review) (*batchv1.Job, error) {
	found := c.options.Caches.PodNamed(c.options.Namespace, pod.name)
	if found == nil || found.UID != pod.uid {
		return nil, refuse(http.StatusServiceUnavailable, "pod %s is not known yet, or deleted", pod.name)
	}
	owner := metav1.GetControllerOfNoCopy(found)
	if owner == nil || owner.Kind != "Job" {
		return nil, refuse(http.StatusForbidden, "pod %s is of no Job", pod.name)
	}
	job := c.options.Caches.JobNamed(c.options.Namespace, owner.Name)
	if job == nil || job.UID != owner.UID {
		return nil, refuse(http.StatusServiceUnavailable, "Job %s is not known yet, or deleted", owner.Name)
	}
	if name, err := mountjobs.Identify(job); err != nil || name.Kind != mountjobs.Mount || !mountjobs.IsUnreleased(job) || mountjobs.IsOver(job) {
		return nil, refuse(http.StatusForbidden, "Job %s is no mount Job that runs", owner.Name)
	}
	return job, nil
}

func (c *Channel) review(ctx context.Context, token string) (review, error) {
	key := sha256.Sum256([]byte(token))
	if value, _ := c.known.Get(key); value != nil {
		known, _ := value.(review)
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	answer, err := c.options.Reviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{wellknown.WorkerAudience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return review{}, refuse(http.StatusServiceUnavailable, "the token could not be reviewed: %v", err)
	}
	pod, err := c.podOf(answer.Status)
	if err != nil {
		return review{}, err
	}
	c.known.Add(key, pod, reviewLife)
	return pod, nil
}

func (c *Channel) podOf(status authenticationv1.TokenReviewStatus) (review, error) {
	if !status.Authenticated || !slices.Contains(status.Audiences, wellknown.WorkerAudience) {
		return review{}, refuse(http.StatusUnauthorized, "the apiserver does not accept the token for %s", wellknown.WorkerAudience)
	}
	if want := username(c.options.Namespace); status.User.Username != want {
		return review{}, refuse(http.StatusForbidden, "the token is of %s, want %s", status.User.Username, want)
	}
	name, uid := status.User.Extra[extraPodName], status.User.Extra[extraPodUID]
	if len(name) != 1 || len(uid) != 1 {
		return review{}, refuse(http.StatusForbidden, "the token is bound to no pod")
	}
	return review{name: name[0], uid: types.UID(uid[0])}, nil
}
