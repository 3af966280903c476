package background

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func TestProgressIsReportedLessAndLessOften(t *testing.T) {
	var l Logs
	var waits []time.Duration
	for at := now; len(waits) < 8; {
		next := l.BeginProgress("job", at)
		waits = append(waits, next)
		if at = at.Add(next); !l.Of("job", nil).Next.Equal(at) {
			t.Fatalf("it is due at %s, not %s", l.Of("job", nil).Next, at)
		}
	}
	if waits[0] != FirstProgress || waits[1] != 2*FirstProgress || waits[7] != lastProgress {
		t.Errorf("the waits are %v", waits)
	}
	if l.Forget("job"); !l.Of("job", nil).Next.IsZero() {
		t.Error("it is not forgotten")
	}
}

// logsOf reads the log of every pod from an apiserver that answers with a code and a text.
func logsOf(t *testing.T, code *int, text string) (l *Logs, queries *[]string) {
	t.Helper()
	queries = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*queries = append(*queries, r.URL.RawQuery)
		w.WriteHeader(*code)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &Logs{Client: client, Namespace: "efs-stunnel"}, queries
}

func surveyIn(state mountjobs.State, counted int) *Job {
	job := &Job{Job: surveyJob(mountjobs.SurveyRecord{Began: now, After: "/team/a"})}
	job.Outcome = mountjobs.Outcome{Status: mountjobs.Status{State: state}, Pod: "pod"}
	job.Outcome.Task.Counted = counted
	return job
}

func (l *Logs) observed(job *Job) *Job {
	job.Log = l.Of(job.Job.UID, job.Job.Annotations)
	return job
}

// TestLinesOfASurveyAreRead, and nothing else that is in its log.
func TestLinesOfASurveyAreRead(t *testing.T) {
	code := http.StatusOK
	l, queries := logsOf(t, &code, `time=2026-01-02T03:04:05Z level=INFO msg="survey started"
{"path":"/team/data","bytes":4096,"files":2}
{"path":"/team/other","bytes":-1,"files":2}
{"path":"/team/../other","bytes":1,"files":2}
{"path":"/team/unknown","bytes":4096,"files":2}
`+strings.Repeat("x", 1<<20))
	job := l.observed(surveyIn(mountjobs.Running, 0))
	l.Begin(job)
	if got := l.Of(job.Job.UID, nil); !got.Reading || got.After != "/team/a" {
		t.Errorf("before it is read: %+v", got)
	}
	counted, err := l.Counted(t.Context(), job, now)
	if err != nil || len(counted) != 2 || counted[0].Path != "/team/data" || counted[0].Bytes != 4096 {
		t.Errorf("counted %+v, %v", counted, err)
	}
	if got := l.Of(job.Job.UID, nil); got.After != "/team/unknown" || got.Drained || got.Reading || !got.Next.Equal(now.Add(readInterval)) {
		t.Errorf("while it runs: %+v", got)
	}
	if _, err := l.Counted(t.Context(), l.observed(surveyIn(mountjobs.Succeeded, 2)), now.Add(time.Minute)); err != nil || !l.Of(job.Job.UID, nil).Drained {
		t.Errorf("after its end: %+v, %v", l.Of(job.Job.UID, nil), err)
	}
	if want := []string{"container=mountjob", "container=mountjob&sinceSeconds=70"}; strings.Join(*queries, " ") != strings.Join(want, " ") {
		t.Errorf("read with %q, want %q", *queries, want)
	}
}

// The log of a Job that has ended is tried again for a while, and then given up.
func TestLogThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		code    int
		counted int // that the Job says that it has counted
	}{
		"no answer":        {http.StatusForbidden, 0},
		"nothing is in it": {http.StatusOK, 3},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := logsOf(t, &c.code, "")
			for _, step := range []struct {
				after      time.Duration
				unreadable bool
			}{{0, false}, {time.Minute, false}, {readTries + time.Second, true}} {
				at := now.Add(step.after)
				job := l.observed(surveyIn(mountjobs.Succeeded, c.counted))
				if _, err := l.Counted(t.Context(), job, at); err == nil {
					t.Fatal("no error")
				}
				if got := l.observed(job).Log; got.Unreadable != step.unreadable || got.Drained || !got.Next.Equal(at.Add(readRetry)) {
					t.Errorf("after %s: %+v", step.after, got)
				}
			}
		})
	}
}

// TestLogThatIsNotThere: the container has not started, or the pod is gone and the cache is behind.
func TestLogThatIsNotThere(t *testing.T) {
	code := http.StatusBadRequest
	l, _ := logsOf(t, &code, "")
	if _, err := l.Counted(t.Context(), l.observed(surveyIn(mountjobs.Running, 0)), now); err != nil {
		t.Error(err)
	}
	code = http.StatusNotFound
	if _, err := l.Counted(t.Context(), l.observed(surveyIn(mountjobs.Succeeded, 0)), now); err != nil || l.Of("survey", nil).Drained {
		t.Errorf("got %+v, %v", l.Of("survey", nil), err)
	}
}
