package usage

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

const fileSystem = "fs-0123456789abcdef0"

var now = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// root is a root claim with a record, and a time at which a survey was requested.
func root(record mountjobs.SurveyRecord, requested time.Time) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		wellknown.AnnotationSurvey: record.Encode(), wellknown.AnnotationSurveyRequested: requested.Format(time.RFC3339),
	}}}
}

func TestDecideWhenASurveyIsDue(t *testing.T) {
	finished := func(began time.Time) mountjobs.SurveyRecord {
		return mountjobs.SurveyRecord{Began: began, Ended: began.Add(time.Minute)}
	}
	begun := mountjobs.SurveyRecord{Began: ago(time.Hour), After: "/team/a"}
	failed := mountjobs.SurveyRecord{Began: ago(time.Hour), After: "/team/a", Failures: 2, Retry: now.Add(time.Minute)}
	fresh := mountjobs.SurveyRecord{Began: now}
	none := mountjobs.SurveyRecord{}
	never := time.Time{}
	tests := map[string]struct {
		interval  time.Duration
		record    mountjobs.SurveyRecord
		requested time.Time
		change    func(*state)
		create    bool
		next      mountjobs.SurveyRecord
		again     time.Time
	}{
		"off":                             {0, none, never, nil, false, none, never},
		"off, after a survey":             {0, finished(ago(time.Hour)), never, nil, false, none, never},
		"the first":                       {time.Hour, none, never, nil, true, fresh, never},
		"not yet":                         {time.Hour, finished(ago(time.Minute)), never, nil, false, none, now.Add(59 * time.Minute)},
		"its time has come":               {time.Hour, finished(ago(time.Hour)), never, nil, true, fresh, never},
		"requested":                       {0, finished(ago(time.Hour)), ago(time.Second), nil, true, fresh, never},
		"requested before the last":       {0, finished(ago(time.Hour)), ago(2 * time.Hour), nil, false, none, never},
		"requested by a clock a bit fast": {0, finished(ago(time.Hour)), now.Add(time.Minute), nil, true, fresh, never},
		"requested for the far future":    {0, finished(ago(time.Hour)), now.Add(time.Hour), nil, false, none, never},
		"goes on":                         {0, begun, never, nil, true, begun, never},
		"goes on when it is requested":    {0, begun, ago(time.Second), nil, true, begun, never},
		"waits after a failure":           {time.Hour, failed, never, nil, false, none, now.Add(time.Minute)},
		"begun in the far future":         {time.Hour, mountjobs.SurveyRecord{Began: now.Add(time.Hour)}, never, nil, true, fresh, never},
		"ended in the far future":         {time.Hour, finished(now.Add(9000 * time.Hour)), never, nil, true, fresh, never},
		"the file system is not ready":    {time.Hour, none, never, func(s *state) { s.notReady = "no port" }, false, none, now.Add(surveysRetry)},
		"the file system is not listed":   {time.Hour, none, never, func(s *state) { s.listed = false }, false, none, never},
		"there is no root claim":          {time.Hour, none, never, func(s *state) { s.root = nil }, false, none, never},
		"others run":                      {time.Hour, none, never, func(s *state) { s.others = maxSurveys }, false, none, now.Add(surveysRetry)},
		"fewer others run":                {time.Hour, none, never, func(s *state) { s.others = maxSurveys - 1 }, true, fresh, never},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := state{id: fileSystem, now: now, listed: true, interval: tt.interval, root: root(tt.record, tt.requested)}
			if tt.change != nil {
				tt.change(&s)
			}
			p := planFor(s)
			var want change
			if tt.create {
				want = createSurvey{tt.next}
			}
			if p.change != want || !p.again.Equal(tt.again) {
				t.Errorf("got %+v, want %+v", p, want)
			}
		})
	}
}

func TestDecideAboutASurveyJob(t *testing.T) {
	began := mountjobs.SurveyRecord{Began: ago(time.Hour), After: "/team/a", Failures: 1}
	outcome := func(state mountjobs.State, change func(*mountjobs.SurveyOutcome)) mountjobs.SurveyOutcome {
		o := mountjobs.SurveyOutcome{Status: mountjobs.Status{State: state, Until: now.Add(time.Hour), Message: "killed"}, Pod: "pod"}
		if change != nil {
			change(&o)
		}
		return o
	}
	noPod := func(o *mountjobs.SurveyOutcome) { o.Pod = "" }
	retry := mountjobs.Backoff(wellknown.DefaultProvisionBackoff, 2)
	tests := map[string]struct {
		survey surveyJob
		gone   bool
		want   string
		next   mountjobs.SurveyRecord
		again  time.Time
	}{
		"runs, unread":         {surveyJob{outcome: outcome(mountjobs.Running, nil)}, false, "read", mountjobs.SurveyRecord{}, time.Time{}},
		"runs, just read":      {surveyJob{outcome: outcome(mountjobs.Running, nil), read: ago(time.Second)}, false, "", mountjobs.SurveyRecord{}, now.Add(readInterval - time.Second)},
		"runs, read a while":   {surveyJob{outcome: outcome(mountjobs.Running, nil), read: ago(readInterval)}, false, "read", mountjobs.SurveyRecord{}, time.Time{}},
		"has no pod yet":       {surveyJob{outcome: outcome(mountjobs.Running, noPod)}, false, "", mountjobs.SurveyRecord{}, now.Add(time.Hour)},
		"cannot start":         {surveyJob{outcome: outcome(mountjobs.Running, nil), stuck: true}, false, "end", mountjobs.SurveyRecord{}, now.Add(time.Hour)},
		"its file system goes": {surveyJob{outcome: outcome(mountjobs.Running, nil)}, true, "delete", mountjobs.SurveyRecord{}, time.Time{}},
		"ended, just read":     {surveyJob{outcome: outcome(mountjobs.Succeeded, nil), read: ago(time.Second)}, false, "read", mountjobs.SurveyRecord{}, time.Time{}},
		"finished": {
			surveyJob{outcome: outcome(mountjobs.Succeeded, nil), after: "/team/z", drained: true}, false,
			"record", mountjobs.SurveyRecord{Began: began.Began, Ended: now}, time.Time{},
		},
		"finished, but its log is lost": {
			surveyJob{outcome: outcome(mountjobs.Succeeded, noPod), after: "/team/k"}, false,
			"record", mountjobs.SurveyRecord{Began: began.Began, After: "/team/k"}, time.Time{},
		},
		"finished, but its log cannot be read": {
			surveyJob{outcome: outcome(mountjobs.Succeeded, nil), after: "/team/k", unreadable: true}, false,
			"record", mountjobs.SurveyRecord{Began: began.Began, After: "/team/k"}, time.Time{},
		},
		"its log was full": {
			surveyJob{outcome: outcome(mountjobs.Finished, nil), after: "/team/k", drained: true}, false,
			"record", mountjobs.SurveyRecord{Began: began.Began, After: "/team/k"}, time.Time{},
		},
		"killed after it had counted": {
			surveyJob{outcome: outcome(mountjobs.Lost, nil), after: "/team/k", drained: true}, false,
			"record", mountjobs.SurveyRecord{Began: began.Began, After: "/team/k"}, time.Time{},
		},
		"killed at once": {
			surveyJob{outcome: outcome(mountjobs.Lost, nil), after: "/team/a", drained: true}, false,
			"record, failed", mountjobs.SurveyRecord{Began: began.Began, After: "/team/a", Failures: 2, Retry: now.Add(retry)}, time.Time{},
		},
		"hangs": {
			surveyJob{outcome: outcome(mountjobs.Stuck, noPod), after: "/team/a"}, false,
			"record, failed", mountjobs.SurveyRecord{Began: began.Began, After: "/team/a", Failures: 2, Retry: now.Add(retry)}, time.Time{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.survey.job = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{wellknown.AnnotationSurvey: began.Encode()}}}
			s := state{id: fileSystem, now: now, listed: !tt.gone, surveys: []surveyJob{tt.survey}, interval: time.Hour, root: root(began, now)}
			p := planFor(s)
			recorded, _ := p.change.(recordSurvey)
			if got := nameOf(p.change); got != tt.want || recorded.next != tt.next || !p.again.Equal(tt.again) {
				t.Errorf("got %s of %+v, want %s", got, p, tt.want)
			}
		})
	}
}

// TestSurveyIsRecordedOnTheNextRootClaim: one that is being deleted takes the record along, and there may be none.
func TestSurveyIsRecordedOnTheNextRootClaim(t *testing.T) {
	began := mountjobs.SurveyRecord{Began: ago(time.Hour), After: "/team/a"}
	goes := root(began, now)
	goes.DeletionTimestamp = &metav1.Time{Time: now}
	for name, tt := range map[string]struct {
		root *corev1.PersistentVolumeClaim
		pod  string
		gone bool
		want string
	}{
		"it goes":                                {goes, "", false, ""},
		"it is gone":                             {nil, "", false, ""},
		"it goes once the survey's pod is gone":  {goes, "pod", false, "record, failed"},
		"the next one":                           {root(began, now), "", false, "record, failed"},
		"there will be none for its file system": {nil, "", true, "record, failed"},
	} {
		survey := surveyJob{
			job:     &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{wellknown.AnnotationSurvey: began.Encode()}}},
			outcome: mountjobs.SurveyOutcome{Status: mountjobs.Status{State: mountjobs.Lost}, Pod: tt.pod}, after: began.After, drained: true,
		}
		s := state{id: fileSystem, now: now, listed: !tt.gone, surveys: []surveyJob{survey}, root: tt.root}
		if p := planFor(s); nameOf(p.change) != tt.want || p.change == nil && p.again.IsZero() {
			t.Errorf("%s: got %+v, want %q", name, p, tt.want)
		}
	}
}

func nameOf(c change) string {
	switch c := c.(type) {
	case readLog:
		return "read"
	case recordSurvey:
		if c.failed != "" {
			return "record, failed"
		}
		return "record"
	case endSurvey:
		return "end"
	case deleteSurvey:
		return "delete"
	case createSurvey:
		return "create"
	}
	return ""
}

func mustSurvey(t *testing.T) *batchv1.Job {
	t.Helper()
	job, err := mountjobs.BuildSurvey(mountjobs.Spec{
		Settings: mountjobs.Settings{Namespace: "efs-stunnel", Image: "image"}, FileSystemID: fileSystem, Number: 1,
	}, mountjobs.SurveyRecord{Began: now})
	if err != nil {
		t.Fatal(err)
	}
	job.UID, job.CreationTimestamp = "job", metav1.NewTime(now)
	return job
}
