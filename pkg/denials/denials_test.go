package denials_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"gnuthought.com/efs-stunnel/pkg/denials"
)

// world is a Denials in front of an apiserver that gives the answer it is told.
type world struct {
	*denials.Denials
	log    bytes.Buffer
	now    time.Time
	code   int
	answer string
}

func newWorld() *world {
	w := &world{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.Denials = denials.New("efs_stunnel_test", slog.New(slog.NewTextHandler(&w.log, nil)), func() time.Time { return w.now })
	return w
}

// RoundTrip plays the apiserver.
func (w *world) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: w.code, Body: io.NopCloser(strings.NewReader(w.answer))}, nil
}

// ask gives the body that the client got.
func (w *world) ask(t *testing.T, method, path string, code int, answer string) string {
	t.Helper()
	w.code, w.answer = code, answer
	u, err := url.Parse("https://127.0.0.1:6443" + path)
	if err != nil {
		t.Fatal(err)
	}
	response, err := w.Wrap(w).RoundTrip(&http.Request{Method: method, URL: u})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.Body.Close() != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	return string(body)
}

func (w *world) missing() string {
	var words []string
	for _, right := range w.Missing() {
		words = append(words, right.String())
	}
	return strings.Join(words, "; ")
}

func status(message string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":"Forbidden","code":403}`, message)
}

func denied(verb, resource string) string {
	return status(fmt.Sprintf(`%[2]s is forbidden: User "system:serviceaccount:a:b" cannot %[1]s resource "%[2]s" in API group "" at the cluster scope`, verb, resource))
}

func TestRequestsAreReadAsRights(t *testing.T) {
	tests := []struct{ method, path, verb, want string }{
		{"GET", "/api/v1/persistentvolumes", "list", "list persistentvolumes"},
		{"GET", "/api/v1/persistentvolumes?watch=true&resourceVersion=1", "watch", "watch persistentvolumes"},
		{"GET", "/api/v1/persistentvolumes?watch=false", "list", "list persistentvolumes"},
		{"GET", "/api/v1/persistentvolumes/pvc-1", "get", "get persistentvolumes"},
		{"GET", "/api/v1/namespaces", "list", "list namespaces"},
		{"GET", "/api/v1/namespaces/kube-system", "get", "get namespaces"},
		{"GET", "/api/v1/namespaces/efs-stunnel/configmaps", "list", "list configmaps in namespace efs-stunnel"},
		{"POST", "/apis/batch/v1/namespaces/efs-stunnel/jobs", "create", "create jobs.batch in namespace efs-stunnel"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "update", "update leases.coordination.k8s.io in namespace a"},
		{"PATCH", "/apis/batch/v1/namespaces/a/jobs/j/status", "patch", "patch jobs.batch/status in namespace a"},
		{"DELETE", "/api/v1/persistentvolumes/pvc-1", "delete", "delete persistentvolumes"},
		{"DELETE", "/api/v1/namespaces/a/pods", "deletecollection", "deletecollection pods in namespace a"},
		{"GET", "/k8s/clusters/c-1/apis/storage.k8s.io/v1/storageclasses", "list", "list storageclasses.storage.k8s.io"},
		{"GET", "/version", "get", ""},
		{"GET", "/api/v1", "get", ""},
		{"GET", "/apis", "get", ""},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			w := newWorld()
			w.ask(t, tt.method, tt.path, http.StatusForbidden, denied(tt.verb, "things"))
			if got := w.missing(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOnlyTheAuthorizerTakesRightsAway(t *testing.T) {
	const pods = "/api/v1/namespaces/a/pods"
	tests := map[string]struct {
		answer string
		want   bool
	}{
		"the authorizer":         {denied("create", "pods"), true},
		"a quota":                {status(`pods "p" is forbidden: exceeded quota: q, requested: pods=1`), false},
		"Pod Security":           {status(`pods "p" is forbidden: violates PodSecurity "restricted:latest"`), false},
		"a namespace that goes":  {status(`pods "p" is forbidden: unable to create new content in namespace a because it is being terminated`), false},
		"an answer that is none": {"<html>", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			if got := w.ask(t, http.MethodPost, pods, http.StatusForbidden, tt.answer); got != tt.answer {
				t.Errorf("the client got %q, want %q", got, tt.answer)
			}
			if got := w.missing() != ""; got != tt.want {
				t.Errorf("missing %q, want any %t", w.missing(), tt.want)
			}
		})
	}
}

func TestAnswersInProtobufAreRead(t *testing.T) {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, metav1.Unversioned)
	body, err := runtime.Encode(encoder, &metav1.Status{Message: `pods is forbidden: User "u" cannot create resource "pods"`})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	if got := w.ask(t, http.MethodPost, "/api/v1/namespaces/a/pods", http.StatusForbidden, string(body)); got != string(body) {
		t.Error("the client got another answer")
	}
	if got, want := w.missing(), "create pods in namespace a"; got != want {
		t.Errorf("missing %q, want %q", got, want)
	}
}

func TestADenialIsToldOnce(t *testing.T) {
	w := newWorld()
	for range 5 {
		w.ask(t, http.MethodGet, "/api/v1/nodes", http.StatusForbidden, denied("list", "nodes"))
	}
	w.ask(t, http.MethodGet, "/api/v1/nodes?watch=true", http.StatusForbidden, denied("watch", "nodes"))
	lines := strings.Split(strings.TrimSpace(w.log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], `reason="missing: list nodes"`) ||
		!strings.Contains(lines[0], `cannot list resource \"nodes\"`) {
		t.Errorf("got %q, want one line for each right, with the apiserver's own words", lines)
	}
}

func TestARightIsGrantedLater(t *testing.T) {
	const volume = "/api/v1/persistentvolumes/"
	tests := map[string]struct {
		method, path string
		code         int
		want         string
	}{
		"it works now":               {"PATCH", volume + "a", 200, ""},
		"it conflicts now":           {"PATCH", volume + "a", 409, ""},
		"its object is gone":         {"PATCH", volume + "a", 404, ""},
		"it is refused by admission": {"PATCH", volume + "a", 403, ""},
		"another object":             {"PATCH", volume + "b", 200, "patch persistentvolumes"},
		"another verb":               {"GET", volume + "a", 200, "patch persistentvolumes"},
		"a server in trouble":        {"PATCH", volume + "a", 503, "patch persistentvolumes"},
		"too many requests":          {"PATCH", volume + "a", 429, "patch persistentvolumes"},
		"no longer known":            {"PATCH", volume + "a", 401, "patch persistentvolumes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.ask(t, "PATCH", volume+"a", http.StatusForbidden, denied("patch", "persistentvolumes"))
			w.ask(t, tt.method, tt.path, tt.code, status("something else"))
			if got := w.missing(); got != tt.want {
				t.Errorf("missing %q, want %q", got, tt.want)
			}
			if told := strings.Contains(w.log.String(), "is granted, or not"); told != (tt.want == "") {
				t.Errorf("the log is\n%s", w.log.String())
			}
		})
	}
}

func TestWhatNobodyAsksForIsForgotten(t *testing.T) {
	w := newWorld()
	w.ask(t, http.MethodGet, "/api/v1/nodes", http.StatusForbidden, denied("list", "nodes"))
	w.now = w.now.Add(time.Hour)
	if w.missing() == "" {
		t.Error("forgotten too early")
	}
	w.now = w.now.Add(time.Second)
	if got := w.missing(); got != "" {
		t.Errorf("missing %q, want nothing after an hour", got)
	}
}

func TestNumberIsBounded(t *testing.T) {
	w := newWorld()
	for i := range 300 {
		w.ask(t, http.MethodGet, fmt.Sprintf("/api/v1/namespaces/n%d/pods", i), http.StatusForbidden, denied("list", "pods"))
	}
	if got := len(w.Missing()); got != 100 {
		t.Errorf("%d rights are kept, want 100", got)
	}
	if got := testutil.CollectAndCount(w); got != 1 {
		t.Errorf("%d metrics, want 1: namespaces are no labels", got)
	}
}

func TestMetric(t *testing.T) {
	w := newWorld()
	w.ask(t, http.MethodPost, "/apis/batch/v1/namespaces/a/jobs", http.StatusForbidden, denied("create", "jobs"))
	w.ask(t, http.MethodGet, "/api/v1/nodes", http.StatusForbidden, denied("list", "nodes"))
	want := `# HELP efs_stunnel_test_forbidden Rights that the apiserver has refused and not granted since; 1 for each.
# TYPE efs_stunnel_test_forbidden gauge
efs_stunnel_test_forbidden{group="",resource="nodes",verb="list"} 1
efs_stunnel_test_forbidden{group="batch",resource="jobs",verb="create"} 1
`
	if err := testutil.CollectAndCompare(w, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestAWatchTakesThePlaceOfAList(t *testing.T) {
	w := newWorld()
	w.ask(t, http.MethodGet, "/api/v1/nodes?watch=true", http.StatusForbidden, denied("watch", "nodes"))
	w.ask(t, http.MethodGet, "/api/v1/nodes", http.StatusForbidden, denied("list", "nodes"))
	w.ask(t, http.MethodGet, "/api/v1/nodes?watch=true", http.StatusOK, "")
	if got := w.missing(); got != "" {
		t.Errorf("missing %q, want nothing: client-go lists no more when it may watch", got)
	}
}

func TestCheck(t *testing.T) {
	w := newWorld()
	w.ask(t, http.MethodPost, "/apis/batch/v1/namespaces/a/jobs", http.StatusForbidden, denied("create", "jobs"))
	if err := w.Check(denials.Right.KeepsCaches); err != nil {
		t.Errorf("a write is no read: %v", err)
	}
	w.ask(t, http.MethodGet, "/api/v1/nodes", http.StatusForbidden, denied("list", "nodes"))
	w.ask(t, http.MethodGet, "/api/v1/namespaces/a/pods?watch=1", http.StatusForbidden, denied("watch", "pods"))
	want := "the service account may not list nodes, watch pods in namespace a: its ClusterRole or Role does not grant it"
	if diff := cmp.Diff(want, fmt.Sprint(w.Check(denials.Right.KeepsCaches))); diff != "" {
		t.Errorf("error mismatch (-want +got):\n%s", diff)
	}
}
