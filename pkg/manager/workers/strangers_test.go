package workers

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// TestTokensOfStrangersCostNoReview: only one that names the pod of a running mount Job is worth one, and nothing
// of them is in a log at its default level.
func TestTokensOfStrangersCostNoReview(t *testing.T) {
	for name, tt := range map[string]struct {
		token string
		code  int
		text  string
	}{
		"junk":                       {"x.y.z", http.StatusUnauthorized, "not one of a service account"},
		"one part":                   {strings.Repeat("x", 8000) + ".", http.StatusUnauthorized, "not one of a service account"},
		"of another audience":        {tokenWith("good", [2]string{`["` + audience, `["https://x`}), http.StatusUnauthorized, "not for"},
		"of another service account": {tokenWith("good", [2]string{":efs-stunnel:", ":team:"}), http.StatusForbidden, "want system:serviceaccount:efs-stunnel:"},
		"of no pod":                  {tokenWith("good", [2]string{`"worker"`, `""`}), http.StatusForbidden, "bound to no pod"},
		"of a pod that is not known": {tokenWith("good", [2]string{`"worker"`, `"other"`}), http.StatusServiceUnavailable, "pod other"},
		"of an earlier pod":          {tokenWith("good", [2]string{`"uid":"pod"`, `"uid":"old"`}), http.StatusServiceUnavailable, "pod worker"},
		"of a pod without a Job":     {tokenWith("good", [2]string{`{"name":"worker","uid":"pod"}`, `{"name":"agent","uid":"agent"}`}), http.StatusForbidden, "of no Job"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var log bytes.Buffer
			f.options.Log = slog.New(slog.NewTextHandler(&log, nil))
			f.check(f.caches.Pods.GetStore().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent", UID: "agent"}}))
			f.expect(f.post(t.Context(), tt.token, done(1, 3)), tt.code, tt.text)
			if f.reviews > 0 || log.Len() > 0 {
				t.Errorf("%d reviews, and the log has %q", f.reviews, &log)
			}
			if refused := testutil.CollectAndCount(f.refused); refused != 1 {
				t.Errorf("%d codes are counted", refused)
			}
		})
	}
}

// TestAudienceMayBeOneText, as some programs that make tokens write it.
func TestAudienceMayBeOneText(t *testing.T) {
	f := newFixture(t)
	ctx, end := context.WithCancel(t.Context())
	f.OnChange(func(*batchv1.Job, int) {}, func(*batchv1.Job) { end() })
	f.post(ctx, tokenWith("good", [2]string{`["` + audience + `"]`, `"` + audience + `"`}), done(1, 3))
	if f.reviews != 1 || f.Reported(f.job.UID) == nil {
		t.Errorf("%d reviews, and the report was not accepted", f.reviews)
	}
}

// TestStrangersGetLittleOfTheServer: small headers, and one request at a time on a connection.
func TestStrangersGetLittleOfTheServer(t *testing.T) {
	f := newFixture(t)
	leading, lose := context.WithCancel(t.Context())
	ended, err := f.Listen(leading)
	f.check(err)
	insecure := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}} //nolint:gosec // the key is another test's
	conn, err := (&tls.Dialer{Config: insecure}).DialContext(t.Context(), "tcp", f.Leader().Address)
	f.check(err)
	if secured, ok := conn.(*tls.Conn); !ok || secured.ConnectionState().NegotiatedProtocol != "http/1.1" {
		t.Errorf("the connection is %T, or has another protocol", conn)
	}
	f.check(conn.Close())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // likewise
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+f.Leader().Address+operations.PollPath, nil)
	f.check(err)
	request.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 32<<10))
	response, err := client.Do(request)
	f.check(err)
	f.check(response.Body.Close())
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 32 KiB gets %s", response.Status)
	}
	lose()
	f.check(ended())
}
