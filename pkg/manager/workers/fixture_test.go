package workers

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

const (
	namespace = "efs-stunnel"
	audience  = wellknown.WorkerAudience
)

// fixture is a channel with one mount Job of three operations, whose pod has the token "good".
type fixture struct {
	*testing.T
	*Channel
	caches *caches.Caches
	job    *batchv1.Job
	tokens map[string]authenticationv1.TokenReviewStatus // by signature
	// reviews is the number of tokens that the apiserver was asked about.
	reviews int
}

// tokenWith is a token of the worker's pod with a signature, with some of its claims changed.
func tokenWith(signature string, edits ...[2]string) string {
	claims := `{"aud":["` + wellknown.WorkerAudience + `"],"sub":"` + username(namespace) + `","kubernetes.io":{"pod":{"name":"worker","uid":"pod"}}}`
	for _, edit := range edits {
		claims = strings.Replace(claims, edit[0], edit[1], 1)
	}
	return "header." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + signature
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	client := fake.NewClientset()
	f := &fixture{T: t, tokens: map[string]authenticationv1.TokenReviewStatus{"good": reviewed(nil)}}
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		asked, ok := create.GetObject().(*authenticationv1.TokenReview)
		if !ok || len(asked.Spec.Audiences) != 1 || asked.Spec.Audiences[0] != wellknown.WorkerAudience {
			t.Errorf("the review is of %+v", asked)
		}
		f.reviews++
		asked.Status = f.tokens[asked.Spec.Token[strings.LastIndex(asked.Spec.Token, ".")+1:]]
		return true, asked, nil
	})
	var err error
	f.caches, err = caches.New(client, nil, namespace)
	f.check(err)
	f.Channel, err = New(Options{
		Host: wellknown.LoopbackAddress, Reviews: client.AuthenticationV1().TokenReviews(), Caches: f.caches, Namespace: namespace,
		Now: time.Now, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	f.check(err)
	f.job, err = mountjobs.Build(mountjobs.Spec{
		Settings: mountjobs.Settings{Namespace: namespace, Image: "image"}, FileSystemID: "fs-1", Number: 1, Operations: setups("a", "b", "c"),
	})
	f.check(err)
	f.job.UID = "job"
	f.store(f.job)
	f.addPod("worker", "pod", f.job)
	return f
}

func (f *fixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// store replaces the Job in the cache, as a watch does.
func (f *fixture) store(job *batchv1.Job) {
	f.Helper()
	before := f.job
	f.job = job
	f.check(f.caches.Jobs.GetStore().Add(job))
	f.jobChanged(before, job)
}

func (f *fixture) addPod(name string, uid types.UID, owner *batchv1.Job) {
	f.Helper()
	f.check(f.caches.Pods.GetStore().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: uid,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("Job"))},
	}}))
}

// give adds the next batch to the Job.
func (f *fixture) give(volumes ...string) {
	f.Helper()
	number := mountjobs.NewestBatch(f.job) + 1
	data, err := operations.EncodeBatch(operations.Batch{Number: number, Operations: setups(volumes...)})
	f.check(err)
	job := f.job.DeepCopy()
	job.Annotations[wellknown.AnnotationBatch(number)] = string(data)
	f.store(job)
}

func setups(volumes ...string) (ops []operations.Operation) {
	for _, v := range volumes {
		ops = append(ops, operations.Operation{
			Kind: operations.Setup, Path: "/" + v,
			Owner: operations.Owner{Volume: "pvc-" + v, Cluster: "cluster", Namespace: "team", Claim: v, ClaimUID: v},
		})
	}
	return ops
}

// reviewed is the apiserver's answer about the worker's token.
func reviewed(edit func(*authenticationv1.TokenReviewStatus)) authenticationv1.TokenReviewStatus {
	status := authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: []string{wellknown.WorkerAudience},
		User: authenticationv1.UserInfo{
			Username: username(namespace),
			Extra:    map[string]authenticationv1.ExtraValue{extraPodName: {"worker"}, extraPodUID: {"pod"}},
		},
	}
	if edit != nil {
		edit(&status)
	}
	return status
}

func done(batch, count int) []byte {
	report := operations.Report{Batch: batch, Results: make([]operations.Result, count)}
	for i := range report.Results {
		report.Results[i].State = operations.Done
	}
	return report.Encode()
}

func (f *fixture) post(ctx context.Context, token string, body []byte) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, operations.PollPath, bytes.NewReader(body))
	if token != "" && !strings.Contains(token, ".") {
		token = tokenWith(token)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response := httptest.NewRecorder()
	f.serve(response, request)
	return response
}

func (f *fixture) expect(response *httptest.ResponseRecorder, code int, text string) {
	f.Helper()
	if response.Code != code || !strings.Contains(response.Body.String(), text) {
		f.Errorf("got %d %q, want %d with %q", response.Code, response.Body, code, text)
	}
}
