package workers

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// reviewer finds the Job of a worker by its token.
type reviewer struct {
	Options
	known *cache.LRUExpireCache // of review, by the SHA-256 of the token
}

// review is a pod that the apiserver has named for a token.
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
func (r *reviewer) identify(ctx context.Context, token string) (*batchv1.Job, error) {
	claimed, err := r.claimedPod(token)
	if err != nil {
		return nil, err
	}
	if _, err := r.jobOf(claimed); err != nil {
		return nil, err
	}
	pod, err := r.review(ctx, token)
	if err != nil {
		return nil, err
	}
	return r.jobOf(pod)
}

// claimedPod reads what a token says of itself. Nothing proves that.
func (r *reviewer) claimedPod(token string) (pod review, err error) {
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
	switch want := username(r.Namespace); {
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

// jobOf returns the running mount Job of a pod.
func (r *reviewer) jobOf(pod review) (*batchv1.Job, error) {
	found := r.Caches.PodNamed(r.Namespace, pod.name)
	if found == nil || found.UID != pod.uid {
		return nil, refuse(http.StatusServiceUnavailable, "pod %s is not known yet, or deleted", pod.name)
	}
	owner := metav1.GetControllerOfNoCopy(found)
	if owner == nil || owner.Kind != "Job" {
		return nil, refuse(http.StatusForbidden, "pod %s is of no Job", pod.name)
	}
	job := r.Caches.JobNamed(r.Namespace, owner.Name)
	if job == nil || job.UID != owner.UID {
		return nil, refuse(http.StatusServiceUnavailable, "Job %s is not known yet, or deleted", owner.Name)
	}
	if name, err := mountjobs.Identify(job); err != nil || name.Kind != mountjobs.Mount || !mountjobs.IsUnreleased(job) || mountjobs.IsOver(job) {
		return nil, refuse(http.StatusForbidden, "Job %s is no mount Job that runs", owner.Name)
	}
	return job, nil
}

func (r *reviewer) review(ctx context.Context, token string) (review, error) {
	key := sha256.Sum256([]byte(token))
	if value, _ := r.known.Get(key); value != nil {
		known, _ := value.(review)
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	answer, err := r.Reviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{wellknown.WorkerAudience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return review{}, refuse(http.StatusServiceUnavailable, "the token could not be reviewed: %v", err)
	}
	pod, err := r.podOf(answer.Status)
	if err != nil {
		return review{}, err
	}
	r.known.Add(key, pod, reviewLife)
	return pod, nil
}

func (r *reviewer) podOf(status authenticationv1.TokenReviewStatus) (review, error) {
	if !status.Authenticated || !slices.Contains(status.Audiences, wellknown.WorkerAudience) {
		return review{}, refuse(http.StatusUnauthorized, "the apiserver does not accept the token for %s", wellknown.WorkerAudience)
	}
	if want := username(r.Namespace); status.User.Username != want {
		return review{}, refuse(http.StatusForbidden, "the token is of %s, want %s", status.User.Username, want)
	}
	name, uid := status.User.Extra[extraPodName], status.User.Extra[extraPodUID]
	if len(name) != 1 || len(uid) != 1 {
		return review{}, refuse(http.StatusForbidden, "the token is bound to no pod")
	}
	return review{name: name[0], uid: types.UID(uid[0])}, nil
}
