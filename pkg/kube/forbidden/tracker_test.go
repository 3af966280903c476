package forbidden_test

import (
	"bytes"
	"errors"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"gnuthought.com/efs-stunnel/pkg/kube/forbidden"
)

// apiserver is a Tracker in front of a fake apiserver.
type apiserver struct {
	*forbidden.Tracker
	log  bytes.Buffer
	now  time.Time
	code int
	body string
}

func newAPIServer() *apiserver {
	a := &apiserver{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	a.Tracker = forbidden.New("efs_stunnel_test", slog.New(slog.NewTextHandler(&a.log, nil)), func() time.Time { return a.now })
	return a
}

// RoundTrip implements http.RoundTripper.
func (a *apiserver) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// request returns the body that the client gets.
func (a *apiserver) request(t *testing.T, method, path string, code int, body string) string {
	t.Helper()
	a.code, a.body = code, body
	u, err := url.Parse("https://127.0.0.1:6443" + path)
	if err != nil {
		t.Fatal(err)
	}
	response, err := a.Wrap(a).RoundTrip(&http.Request{Method: method, URL: u})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(response.Body)
	if err != nil || response.Body.Close() != nil {
		t.Fatalf("reading the response: %v", err)
	}
	return string(got)
}

// missing returns the permissions as one text.
func (a *apiserver) missing() string {
	var all []string
	for _, permission := range a.Missing() {
		all = append(all, permission.String())
	}
	return strings.Join(all, "; ")
}

func status(message string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":"Forbidden","code":403}`, message)
}

// message is the apiserver's. resource is as in a Permission, namespace "" for the cluster.
func message(verb, resource, group, namespace string) string {
	scope := "at the cluster scope"
	if namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", namespace)
	}
	return fmt.Sprintf("%[2]s is forbidden: User \"system:serviceaccount:a:b\" cannot %[1]s resource %[2]q in API group %[3]q %[4]s", verb, resource, group, scope)
}

func refused(verb, resource string) string { return status(message(verb, resource, "", "")) }

func TestRefusalNamesThePermission(t *testing.T) {
	tests := []struct{ message, want string }{
		{message("list", "persistentvolumes", "", ""), "list persistentvolumes"},
		{message("watch", "persistentvolumes", "", ""), "watch persistentvolumes"},
		{message("get", "namespaces", "", "kube-system"), "get namespaces in namespace kube-system"},
		{message("create", "jobs", "batch", "efs-stunnel"), "create jobs.batch in namespace efs-stunnel"},
		{message("update", "leases", "coordination.k8s.io", "a"), "update leases.coordination.k8s.io in namespace a"},
		{message("patch", "jobs/status", "batch", "a"), "patch jobs.batch/status in namespace a"},
		{message("deletecollection", "pods", "", "a") + `: RBAC: role.rbac.authorization.k8s.io "x" not found`, "deletecollection pods in namespace a"},
		{`forbidden: User "u" cannot get path "/version"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.message, func(t *testing.T) {
			a := newAPIServer()
			a.request(t, http.MethodGet, "/path", http.StatusForbidden, status(tt.message))
			if got := a.missing(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			err := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(tt.message))
			if got := forbidden.IsRefusal(fmt.Errorf("listing: %w", err)); got != (tt.want != "") {
				t.Errorf("IsRefusal returns %t", got)
			}
		})
	}
}

func TestAdmissionIsNoMissingPermission(t *testing.T) {
	tests := map[string]struct {
		body string
		want bool
	}{
		"authorizer":            {refused("create", "pods"), true},
		"quota":                 {status(`pods "p" is forbidden: exceeded quota: q, requested: pods=1`), false},
		"Pod Security":          {status(`pods "p" is forbidden: violates PodSecurity "restricted:latest"`), false},
		"terminating namespace": {status(`pods "p" is forbidden: unable to create new content in namespace a because it is being terminated`), false},
		"not a Status":          {"<html>", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer()
			if got := a.request(t, http.MethodPost, "/api/v1/namespaces/a/pods", http.StatusForbidden, tt.body); got != tt.body {
				t.Errorf("the client got %q, want %q", got, tt.body)
			}
			if got := a.missing() != ""; got != tt.want {
				t.Errorf("missing %q, want any %t", a.missing(), tt.want)
			}
		})
	}
}

func TestResponseInProtobuf(t *testing.T) {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, metav1.Unversioned)
	body, err := runtime.Encode(encoder, &metav1.Status{Message: message("create", "pods", "", "a")})
	if err != nil {
		t.Fatal(err)
	}
	a := newAPIServer()
	if got := a.request(t, http.MethodPost, "/api/v1/namespaces/a/pods", http.StatusForbidden, string(body)); got != string(body) {
		t.Error("the client got another body")
	}
	if got, want := a.missing(), "create pods in namespace a"; got != want {
		t.Errorf("missing %q, want %q", got, want)
	}
}

func TestRepeatedRefusalIsLoggedOnce(t *testing.T) {
	a := newAPIServer()
	for range 5 {
		a.request(t, http.MethodGet, "/api/v1/nodes", http.StatusForbidden, refused("list", "nodes"))
	}
	a.request(t, http.MethodGet, "/api/v1/nodes?watch=true", http.StatusForbidden, refused("watch", "nodes"))
	lines := strings.Split(strings.TrimSpace(a.log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], `permission="list nodes"`) ||
		!strings.Contains(lines[0], `cannot list resource \"nodes\"`) {
		t.Errorf("got %q, want one line for each permission, with the apiserver's message", lines)
	}
}

func TestPermissionIsGrantedLater(t *testing.T) {
	const volume = "/api/v1/persistentvolumes/"
	tests := map[string]struct {
		method, path string
		code         int
		want         string
	}{
		"success":              {"PATCH", volume + "a", 200, ""},
		"conflict":             {"PATCH", volume + "a", 409, ""},
		"not found":            {"PATCH", volume + "a", 404, ""},
		"refused by admission": {"PATCH", volume + "a", 403, ""},
		"another object":       {"PATCH", volume + "b", 200, "patch persistentvolumes"},
		"another verb":         {"GET", volume + "a", 200, "patch persistentvolumes"},
		"server unavailable":   {"PATCH", volume + "a", 503, "patch persistentvolumes"},
		"too many requests":    {"PATCH", volume + "a", 429, "patch persistentvolumes"},
		"unauthorized":         {"PATCH", volume + "a", 401, "patch persistentvolumes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer()
			a.request(t, "PATCH", volume+"a", http.StatusForbidden, refused("patch", "persistentvolumes"))
			a.request(t, tt.method, tt.path, tt.code, status("something else"))
			if got := a.missing(); got != tt.want {
				t.Errorf("missing %q, want %q", got, tt.want)
			}
			if logged := strings.Contains(a.log.String(), "is granted, or not"); logged != (tt.want == "") {
				t.Errorf("the log is\n%s", a.log.String())
			}
		})
	}
}

func TestListAndWatchAreGrantedLater(t *testing.T) {
	tests := map[string]struct {
		path, want string
	}{
		"a watch stands for the list": {"/api/v1/nodes?watch=true", ""},
		"a list does not for a watch": {"/api/v1/nodes?watch=false", "watch nodes"},
		"another resource":            {"/api/v1/pods?watch=true", "list nodes; watch nodes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer()
			a.request(t, http.MethodGet, "/api/v1/nodes?watch=true", http.StatusForbidden, refused("watch", "nodes"))
			a.request(t, http.MethodGet, "/api/v1/nodes", http.StatusForbidden, refused("list", "nodes"))
			a.request(t, http.MethodGet, tt.path, http.StatusOK, "")
			if got := a.missing(); got != tt.want {
				t.Errorf("missing %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPermissionExpires(t *testing.T) {
	a := newAPIServer()
	a.request(t, http.MethodGet, "/api/v1/nodes", http.StatusForbidden, refused("list", "nodes"))
	a.now = a.now.Add(time.Hour)
	if a.missing() == "" {
		t.Error("it expired too early")
	}
	a.now = a.now.Add(time.Second)
	if got := a.missing(); got != "" {
		t.Errorf("missing %q, want nothing after an hour", got)
	}
}

func TestNumberIsBounded(t *testing.T) {
	a := newAPIServer()
	for i := range 300 {
		namespace := fmt.Sprintf("n%d", i)
		a.request(t, http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods", http.StatusForbidden, status(message("list", "pods", "", namespace)))
	}
	if got := len(a.Missing()); got != 100 {
		t.Errorf("%d permissions are kept, want 100", got)
	}
	if got := testutil.CollectAndCount(a); got != 1 {
		t.Errorf("%d metrics, want 1: namespaces are no labels", got)
	}
}

func TestMetric(t *testing.T) {
	a := newAPIServer()
	a.request(t, http.MethodPost, "/apis/batch/v1/namespaces/a/jobs", http.StatusForbidden, status(message("create", "jobs", "batch", "a")))
	a.request(t, http.MethodGet, "/api/v1/nodes", http.StatusForbidden, refused("list", "nodes"))
	want := `# HELP efs_stunnel_test_forbidden 1 for each permission that the apiserver has refused and not granted since.
# TYPE efs_stunnel_test_forbidden gauge
efs_stunnel_test_forbidden{group="",resource="nodes",verb="list"} 1
efs_stunnel_test_forbidden{group="batch",resource="jobs",verb="create"} 1
`
	if err := testutil.CollectAndCompare(a, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	a := newAPIServer()
	reads := func(p forbidden.Permission) bool { return p.Verb != "create" }
	a.request(t, http.MethodPost, "/apis/batch/v1/namespaces/a/jobs", http.StatusForbidden, refused("create", "jobs"))
	if err := a.Check(reads); err != nil {
		t.Errorf("got %v for a permission that is not needed", err)
	}
	a.request(t, http.MethodGet, "/api/v1/nodes", http.StatusForbidden, refused("list", "nodes"))
	a.request(t, http.MethodGet, "/api/v1/namespaces/a/pods?watch=1", http.StatusForbidden, status(message("watch", "pods", "", "a")))
	want := "the service account may not list nodes, watch pods in namespace a: its ClusterRole or Role does not grant it"
	if diff := cmp.Diff(want, fmt.Sprint(a.Check(reads))); diff != "" {
		t.Errorf("error mismatch (-want +got):\n%s", diff)
	}
}
