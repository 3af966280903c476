package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

const fsID = "fs-0123456789abcdef0"

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// snapshot is an installation where text that users choose is text.
func snapshot(text string) *inspect.Snapshot {
	s := &inspect.Snapshot{Namespace: wellknown.Namespace, Provisioner: wellknown.DefaultProvisioner, Now: now}
	ready := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Image: "registry.example.com/efs-stunnel:1.2"}}}
	s.Manager = &appsv1.Deployment{Status: appsv1.DeploymentStatus{ReadyReplicas: 1, UpdatedReplicas: 1}}
	s.Manager.Spec.Template.Spec = spec
	s.Agents = &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, NumberReady: 1, UpdatedNumberScheduled: 2}}
	s.Agents.Spec.Template.Spec = spec
	for i, node := range []string{"ip-10-0-0-1", "ip-10-0-1-1"} {
		s.Nodes = append(s.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "efs-stunnel-" + node, Labels: mountjobs.AgentLabels()}, Spec: spec}
		pod.Spec.NodeName = node
		if i == 0 {
			pod.Status.Conditions = ready
		} else {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: text}}
		}
		s.Pods = append(s.Pods, pod)
	}
	table := ports.Table{Targets: map[string]ports.Target{fsID: {
		Name: text, Port: 20490, DNSName: fsID + ".efs.us-east-1.amazonaws.com",
		AddressByZone: map[string]netip.Addr{"us-east-1a": netip.MustParseAddr("10.0.0.4"), "us-east-1b": netip.MustParseAddr("10.0.1.4")},
	}}}
	s.Table = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: wellknown.TargetsConfigMap},
		Data:       map[string]string{wellknown.TargetsKey: string(ports.Encode(table))},
	}
	class := "efs"
	s.Classes = []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: s.Provisioner}}
	s.Claims = []*corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "reports", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
		Status: corev1.PersistentVolumeClaimStatus{Conditions: []corev1.PersistentVolumeClaimCondition{
			{Type: wellknown.ConditionProvisioned, Status: corev1.ConditionFalse, Reason: "ClaimRejected", Message: text},
		}},
	}}
	for name, used := range map[string]int64{"small": 5000, "large": 3 << 30} {
		claim := s.Claims[0].DeepCopy()
		claim.Name, claim.Spec.Resources.Requests = name, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		claim.Annotations = map[string]string{wellknown.AnnotationUsage: mountjobs.UsageRecord{Bytes: used, Files: 12345, At: now.Add(-time.Hour), Incomplete: text}.Encode()}
		s.Claims = append(s.Claims, claim)
	}
	s.SharedVolumes = []*v1alpha1.SharedVolume{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "shared"},
		Status:     v1alpha1.SharedVolumeStatus{Phase: v1alpha1.Failed, Message: text},
	}}
	s.NodeTunnels = []*v1alpha1.NodeTunnels{{ObjectMeta: metav1.ObjectMeta{Name: "ip-10-0-0-1"}, Status: v1alpha1.NodeTunnelsStatus{
		Total: 1, Failing: 1, Tunnels: []v1alpha1.Tunnel{{Name: fsID, Problems: []v1alpha1.Problem{{Reason: wellknown.EventTunnelUnhealthy, Message: text}}}},
	}}}
	s.Events = []corev1.Event{
		warning("Node", "", "ip-10-0-0-1", wellknown.EventTunnelMoved, text),
		warning("PersistentVolumeClaim", "team", "reports", wellknown.EventProvisioningFailed, text),
	}
	return s
}

func warning(kind, namespace, name, reason, message string) corev1.Event {
	return corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}, Reason: reason, Message: message,
		Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: "efs-stunnel"}, LastTimestamp: metav1.NewTime(now.Add(-time.Minute)),
	}
}

func handlerOf(s *inspect.Snapshot, err error) *Handler {
	return New("127.0.0.1:8080", func(context.Context) (*inspect.Snapshot, error) { return s, err })
}

// get requests the page as a browser does.
func get(t *testing.T, h *Handler, edit func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, h.URL(), nil)
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPageHasWhatThereIs(t *testing.T) {
	text := get(t, handlerOf(snapshot("some text"), nil), nil).Body.String()
	for _, want := range []string{
		fsID, "20490", "us-east-1b <span class=\"soft\">10.0.1.4", "ip-10-0-0-1", "not ready: some text", "TunnelUnhealthy", "team/reports",
		"ClaimRejected", `value="3221225472" aria-label="of its request"></meter>3.0 GiB`, "over its request; at least: some text", "60m ago", "team/shared", "Node ip-10-0-0-1", "PersistentVolumeClaim team/reports", "1 of 2", "efs-stunnel:1.2", "at 12:00:00 UTC", "NoLeader",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if problems, rest := strings.Index(text, "<h2>Problems"), strings.Index(text, "<h2>File systems"); problems < 0 || problems > rest {
		t.Error("problems are not first")
	}
	if large, small := strings.Index(text, `<th scope="row">team/large</th><td class="line"><code>`), strings.Index(text, `<th scope="row">team/small</th><td class="line"><code>`); large < 0 || large > small {
		t.Error("the largest claim is not the first")
	}
	if bad, good := strings.Index(text, `<strong>ip-10-0-1-1`), strings.Index(text, `<strong>ip-10-0-0-1`); bad < 0 || bad > good {
		t.Error("the node that is not ready is not the first")
	}
}

func TestHostileTextDoesNoHarm(t *testing.T) {
	const hostile = "</td><script>alert(1)</script><img src=x onerror=alert(1)>\"'\x1b[2J\n\x00\xff\u202etxt{{.Nonce}}"
	plain, attacked := get(t, handlerOf(snapshot("x"), nil), nil).Body.String(), get(t, handlerOf(snapshot(hostile), nil), nil).Body.String()
	for _, tag := range []string{"<script", "<img", "</td>", "<style"} {
		if got, want := strings.Count(attacked, tag), strings.Count(plain, tag); got != want {
			t.Errorf("%d of %s, want %d", got, tag, want)
		}
	}
	if !utf8.ValidString(attacked) || strings.ContainsAny(attacked, "\x1b\x00\u202e") {
		t.Error("control characters are on the page")
	}
	if !strings.Contains(attacked, "{{.Nonce}}") || !strings.Contains(attacked, "&lt;script&gt;alert(1)") {
		t.Error("the text is not shown as it is")
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	h := handlerOf(snapshot("x"), nil)
	tests := map[string]struct {
		edit func(*http.Request)
		code int
	}{
		"by address":            {nil, http.StatusOK},
		"by name":               {func(r *http.Request) { r.Host = "localhost:8080" }, http.StatusOK},
		"another name":          {func(r *http.Request) { r.Host = "attacker.example.com:8080" }, http.StatusForbidden},
		"another port":          {func(r *http.Request) { r.Host = "127.0.0.1:80" }, http.StatusForbidden},
		"no name":               {func(r *http.Request) { r.Host = "" }, http.StatusForbidden},
		"a path of a guess":     {func(r *http.Request) { r.URL.Path = "/" }, http.StatusNotFound},
		"a path below the page": {func(r *http.Request) { r.URL.Path += "x" }, http.StatusNotFound},
		"a write":               {func(r *http.Request) { r.Method = http.MethodPost }, http.StatusMethodNotAllowed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := get(t, h, tt.edit)
			if w.Code != tt.code || (tt.code != http.StatusOK && strings.Contains(w.Body.String(), fsID)) {
				t.Errorf("code %d, want %d", w.Code, tt.code)
			}
		})
	}
	if other := handlerOf(nil, nil); other.URL() == h.URL() || len(h.path) < 20 {
		t.Errorf("the path can be guessed: %s", h.path)
	}
}

// TestPageRunsNothingButItsOwnScript: all inline elements have the nonce, which each answer has anew, and
// nothing comes from elsewhere.
func TestPageRunsNothingButItsOwnScript(t *testing.T) {
	h := handlerOf(snapshot("x"), nil)
	nonces := map[string]bool{}
	for range 2 {
		w := get(t, h, nil)
		policy := w.Header().Get("Content-Security-Policy")
		match := regexp.MustCompile(`script-src 'nonce-([A-Z0-9]+)'`).FindStringSubmatch(policy)
		if match == nil || !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") {
			t.Fatalf("policy %q", policy)
		}
		nonces[match[1]] = true
		body := strings.ReplaceAll(w.Body.String(), `<a href="`+wellknown.DocsURL, "") // a link loads nothing
		if n := strings.Count(body, `nonce="`+match[1]+`"`); n != 2 {
			t.Errorf("%d elements have the nonce", n)
		}
		for _, foreign := range []string{"http://", "https://", "src=", "@import", "url(", "style="} {
			if strings.Contains(body, foreign) {
				t.Errorf("the page has %s", foreign)
			}
		}
		if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("headers %v", w.Header())
		}
	}
	if len(nonces) != 2 {
		t.Error("the nonce is used twice")
	}
}

func TestPageOfAClusterThatDoesNotAnswer(t *testing.T) {
	w := get(t, handlerOf(nil, errors.New("connection refused\x1b <b>")), nil)
	if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "connection refused? &lt;b&gt;") {
		t.Errorf("code %d: %s", w.Code, w.Body)
	}
}

func TestTabsShareOneReading(t *testing.T) {
	read := 0
	h := New("127.0.0.1:8080", func(context.Context) (*inspect.Snapshot, error) {
		read++
		return snapshot("x"), nil
	})
	for range 5 {
		get(t, h, nil)
	}
	if h.read = h.read.Add(-fresh); read != 1 {
		t.Errorf("read %d times", read)
	}
	if get(t, h, nil); read != 2 {
		t.Errorf("read %d times after a while", read)
	}
}

func TestLongListsAreCut(t *testing.T) {
	s := snapshot("x")
	for i := range 3 * mostRows {
		claim := s.Claims[1].DeepCopy()
		claim.Name = fmt.Sprintf("claim-%03d", i)
		s.Claims = append(s.Claims, claim)
		s.Nodes = append(s.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%03d", i)}})
	}
	text := get(t, handlerOf(s, nil), nil).Body.String()
	if rows := strings.Count(text, "<tr>"); rows > 6*mostRows || !strings.Contains(text, "Claims that wait: 153") || !strings.Contains(text, "… and 102 nodes more") || !strings.Contains(text, "50 of 153 shown") {
		t.Errorf("%d rows", rows)
	}
}

// TestPageOfATenantSaysUnknown: what the user may not read is not called missing.
func TestPageOfATenantSaysUnknown(t *testing.T) {
	s := &inspect.Snapshot{Namespace: wellknown.Namespace, Now: now}
	for _, resource := range []string{"leases.coordination.k8s.io", "configmaps", "nodes", "jobs.batch", "persistentvolumes"} {
		s.Unread = append(s.Unread, inspect.Unread{Verb: "list", Resource: resource})
	}
	var text strings.Builder
	if err := pageTemplate.Execute(&text, newPage(s)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`Leader: <span class="warn">?</span>. Volumes: ?</p>`, `Jobs that run or failed: ?</h2>`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, text.String())
		}
	}
	if unknown := strings.Count(text.String(), `<p class="soft">?</p>`); unknown != 2 {
		t.Errorf("%d tables are unknown, want those of file systems and nodes", unknown)
	}
}
