package workers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func TestTokens(t *testing.T) {
	with := func(edit func(*authenticationv1.TokenReviewStatus)) *authenticationv1.TokenReviewStatus {
		status := reviewed(edit)
		return &status
	}
	for name, tt := range map[string]struct {
		token  string
		status *authenticationv1.TokenReviewStatus // nil: as it is
		code   int
		text   string
	}{
		"none":    {"", nil, http.StatusUnauthorized, "has no token"},
		"unknown": {"other", nil, http.StatusUnauthorized, "does not accept"},
		"expired": {"good", &authenticationv1.TokenReviewStatus{Error: "token has expired"}, http.StatusUnauthorized, "does not accept"},
		"of another audience": {"good", with(func(s *authenticationv1.TokenReviewStatus) {
			s.Audiences = []string{"https://kubernetes.default.svc"}
		}), http.StatusUnauthorized, "does not accept"},
		"of another service account": {"good", with(func(s *authenticationv1.TokenReviewStatus) {
			s.User.Username = "system:serviceaccount:team:efs-worker"
		}), http.StatusForbidden, "want system:serviceaccount:efs-stunnel:efs-worker"},
		"bound to no pod":        {"good", with(func(s *authenticationv1.TokenReviewStatus) { s.User.Extra = nil }), http.StatusForbidden, "bound to no pod"},
		"of an earlier pod":      {"good", with(func(s *authenticationv1.TokenReviewStatus) { s.User.Extra[extraPodUID] = []string{"old"} }), http.StatusServiceUnavailable, "pod worker"},
		"of a pod without a Job": {"good", with(func(s *authenticationv1.TokenReviewStatus) { s.User.Extra[extraPodName] = []string{"stray"} }), http.StatusServiceUnavailable, "pod stray"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if tt.status != nil {
				f.tokens["good"] = *tt.status
			}
			f.expect(f.post(t.Context(), tt.token, done(1, 3)), tt.code, tt.text)
			if f.Reported(f.job.UID) != nil {
				t.Error("the report was accepted")
			}
		})
	}
}

func TestJobThatIsOverHasNoWorker(t *testing.T) {
	for name, edit := range map[string]func(*batchv1.Job){
		"released": func(j *batchv1.Job) { j.Finalizers = nil },
		"foreign":  func(j *batchv1.Job) { j.Labels = nil },
		"complete": func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			job := f.job.DeepCopy()
			edit(job)
			f.store(job)
			f.expect(f.post(t.Context(), "good", done(1, 3)), http.StatusForbidden, "no mount Job that runs")
		})
	}
}

func TestWorkerGetsTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		reports, waits := 0, 0
		f.OnChange(func(*batchv1.Job, int) { reports++ }, func(*batchv1.Job) { waits++ })
		answers := make(chan *httptest.ResponseRecorder)
		go func() { answers <- f.post(t.Context(), "good", done(1, 3)) }()
		synctest.Wait()
		if !f.Waits(f.job) || reports != 1 || waits != 1 || len(f.Reported("job")) != 1 {
			t.Errorf("waits: %v, %d reports, %d waits, %v", f.Waits(f.job), reports, waits, f.Reported("job"))
		}
		f.give("d")
		f.expect(<-answers, http.StatusOK, `"batch":2`)
		if f.Waits(f.job) {
			t.Error("it waits although it has a batch")
		}
		// The answer was lost.
		f.expect(f.post(t.Context(), "good", done(1, 3)), http.StatusOK, `"batch":2`)
		start := time.Now()
		f.expect(f.post(t.Context(), "good", done(2, 1)), http.StatusNoContent, "")
		if time.Since(start) != operations.LongestPoll {
			t.Errorf("it waited for %s", time.Since(start))
		}
		if got := f.Reported("job"); reports != 2 || len(got) != 2 || got[2].Report.Results[0].State != operations.Done {
			t.Errorf("%d reports, %+v", reports, got)
		}
		released := f.job.DeepCopy()
		released.Finalizers = nil
		f.store(released)
		if f.Reported("job") != nil {
			t.Error("a Job that was released is remembered")
		}
	})
}

func TestReportsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		body []byte
		code int
		text string
	}{
		"half a report":              {done(1, 3)[:20], http.StatusBadRequest, "reading the report"},
		"nothing":                    {nil, http.StatusBadRequest, "reading the report"},
		"too large":                  {bytes.Repeat([]byte(" "), operations.MaxReportBytes+1), http.StatusBadRequest, "too large"},
		"of more operations":         {done(1, 4), http.StatusBadRequest, "4 operations"},
		"of a result never given":    {[]byte(`{"operations":[0,0,-1]}`), http.StatusBadRequest, "the number -1"},
		"of a batch never given":     {done(2, 1), http.StatusConflict, "has batch 1 now"},
		"of a batch in the far past": {done(-5, 3), http.StatusNoContent, ""}, // it is one of the first batch
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.expect(f.post(t.Context(), "good", tt.body), tt.code, tt.text)
				if accepted := f.Reported("job") != nil; accepted != (tt.code == http.StatusNoContent) {
					t.Errorf("accepted: %v", f.Reported("job"))
				}
			})
		})
	}
}

func TestLaterRequestReplacesTheEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		first, second := make(chan *httptest.ResponseRecorder, 1), make(chan *httptest.ResponseRecorder, 1)
		go func() { first <- f.post(t.Context(), "good", done(1, 3)) }()
		synctest.Wait()
		go func() { second <- f.post(t.Context(), "good", done(1, 3)) }()
		f.expect(<-first, http.StatusConflict, "another request")
		f.give("d")
		f.expect(<-second, http.StatusOK, `"batch":2`)
	})
}

func TestWorkerIsEndedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.End(f.job, "early") // none waits
		answers := make(chan *httptest.ResponseRecorder)
		go func() { answers <- f.post(t.Context(), "good", done(1, 3)) }()
		synctest.Wait()
		start := time.Now()
		f.End(f.job, "it has no room")
		f.expect(<-answers, http.StatusConflict, "it has no room")
		if f.Waits(f.job) || time.Since(start) > 0 {
			t.Errorf("it waits still: %v, after %s", f.Waits(f.job), time.Since(start))
		}
	})
}

func TestWorkerThatHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, hangUp := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.post(ctx, "good", done(1, 3))
		}()
		synctest.Wait()
		hangUp()
		<-ended
		if f.Waits(f.job) {
			t.Error("it still counts as waiting")
		}
	})
}

// TestHostileReports: whatever a worker says, the manager has at most one result for each operation that
// it gave, with values that it knows.
func TestHostileReports(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that is to be repeatable
	for n := range 10_000 {
		f := &hostile{random: random}
		message := f.message()
		fixture := hostileFixture(t)
		if _, err := fixture.report(fixture.job, message); err != nil {
			if fixture.Reported("job") != nil {
				t.Fatalf("%d: %s was refused (%v) and accepted", n, message, err)
			}
			continue
		}
		for batch, reported := range fixture.Reported("job") {
			if batch != 2 || len(reported.Report.Results) != 2 {
				t.Fatalf("%d: %s gave %d results of batch %d", n, message, len(reported.Report.Results), batch)
			}
			for _, result := range reported.Report.Results {
				switch result.State {
				case operations.Unknown, operations.Done, operations.Failed, operations.Blocked, operations.NotDone:
				default:
					t.Fatalf("%d: %s gave %+v", n, message, result)
				}
				if result.GID < 0 || result.GID > operations.MaxID {
					t.Fatalf("%d: %s gave %+v", n, message, result)
				}
			}
		}
	}
}

// hostileFixture is a channel whose Job has a second batch of two operations.
func hostileFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, Channel: &Channel{
		options: Options{Now: time.Now}, workers: map[types.UID]*worker{}, onReport: func(*batchv1.Job, int) {},
	}}
	job, err := mountjobs.Build(mountjobs.Spec{
		Settings: mountjobs.Settings{Namespace: namespace, Image: "image"}, FileSystemID: "fs-1", Number: 1, Operations: setups("a"),
	})
	f.check(err)
	data, err := operations.EncodeBatch(operations.Batch{Number: 2, Operations: setups("b", "c")})
	f.check(err)
	job.UID, job.Annotations[wellknown.AnnotationBatch(2)] = "job", string(data)
	f.job = job
	return f
}

type hostile struct{ random *rand.Rand }

func (h *hostile) pick(values ...string) string { return values[h.random.IntN(len(values))] }

// message is a report in which anything may be wrong.
func (h *hostile) message() []byte {
	var results []string
	for range h.random.IntN(4) {
		results = append(results, fmt.Sprintf(`{"state":%s,"reason":%s,"gid":%s,"owners":%s}`,
			h.pick(`"done"`, `"failed"`, `"blocked"`, `"notDone"`, `"removed"`, `""`, `1`),
			h.pick(`""`, `"NotNFS"`, `"IOError"`, `"anything"`),
			h.pick(`0`, `2000`, `-1`, `2147483647`, `2147483648`, `"x"`),
			h.pick(`[]`, `[{"volume":"pvc-other","cluster":"c"}]`, `{}`, `null`)))
	}
	text := fmt.Sprintf(`{"operations":[%s],"batch":%s,"results":[%s]}`,
		h.pick("-1,-2", "-2,-1", "-1,0", "2000,-1", "0,0", "-1", "-1,-2,-3", "1e9,2147483648", "-3,-3"), h.pick("2", "2", "2", "1", "3", "0"), strings.Join(results, ","))
	if h.random.IntN(10) == 0 {
		text = text[:h.random.IntN(len(text))]
	}
	return []byte(text)
}

// TestLeaderThatLosesItsLease cuts off a request that waits, and is no leader of new Jobs.
func TestLeaderThatLosesItsLease(t *testing.T) {
	f := newFixture(t)
	waiting := make(chan struct{}, 1)
	f.OnChange(func(*batchv1.Job, int) {}, func(*batchv1.Job) { waiting <- struct{}{} })
	leading, lose := context.WithCancel(t.Context())
	defer lose()
	ended, err := f.Listen(leading)
	f.check(err)
	address := f.Leader().Address
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the key is another test's
	failed := make(chan error, 1)
	go func() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+operations.PollPath, bytes.NewReader(done(1, 3)))
		if err == nil {
			request.Header.Set("Authorization", "Bearer "+tokenWith("good"))
			var response *http.Response
			if response, err = client.Do(request); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if response.StatusCode == http.StatusGone {
					err = errors.New(response.Status)
				}
			}
		}
		failed <- err
	}()
	<-waiting
	lose()
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
	f.check(ended())
	if f.Leader() != (mountjobs.Leader{}) {
		t.Errorf("it leads still, at %+v", f.Leader())
	}
}

// TestWorkerThatWaitsNoLonger has not been refused: the log of a healthy manager does not say so.
func TestWorkerThatWaitsNoLonger(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	f.options.Log = slog.New(slog.NewTextHandler(&log, nil))
	waiting, leave := context.WithCancel(t.Context())
	f.OnChange(func(*batchv1.Job, int) {}, func(*batchv1.Job) { leave() })
	f.post(waiting, "good", done(1, 3))
	if log.Len() > 0 {
		t.Errorf("the log has %s", &log)
	}
}

// In a cluster of IPv6, POD_IP is such an address.
func TestWorkersReachAManagerWithIPv6(t *testing.T) {
	f := newFixture(t)
	f.options.Host = "::1"
	leading, lose := context.WithCancel(t.Context())
	defer lose()
	ended, err := f.Listen(leading)
	f.check(err)
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the key is another test's
	conn, err := dialer.DialContext(t.Context(), "tcp", f.Leader().Address)
	f.check(err)
	f.check(conn.Close())
	lose()
	f.check(ended())
}

func TestNoHostIsNoChannel(t *testing.T) {
	c, err := New(Options{})
	if err != nil || c.Leader() != (mountjobs.Leader{}) || c.Waits(&batchv1.Job{}) || c.Reported("job") != nil {
		t.Errorf("got %+v, %v", c, err)
	}
	c.End(&batchv1.Job{}, "")
	ended, err := c.Listen(t.Context())
	if err != nil || ended() != nil {
		t.Errorf("got %v", err)
	}
}

// TestKeyIsThatOfTheCertificate, as a worker reads it.
func TestKeyIsThatOfTheCertificate(t *testing.T) {
	certificate, key, err := newCertificate()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(parsed.RawSubjectPublicKeyInfo); hex.EncodeToString(sum[:]) != key {
		t.Error("the key has another hash")
	}
}
