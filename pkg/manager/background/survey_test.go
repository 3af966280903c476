package background

import (
	"reflect"
	"strings"
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
		change    func(*Survey)
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
		"the file system is not ready":    {time.Hour, none, never, func(s *Survey) { s.NotReady = "no port" }, false, none, never},
		"the file system is not listed":   {time.Hour, none, never, func(s *Survey) { s.Listed = false }, false, none, never},
		"there is no root claim":          {time.Hour, none, never, func(s *Survey) { s.Root = nil }, false, none, never},
		"others run":                      {time.Hour, none, never, func(s *Survey) { s.Others = func() int { return maxSurveys } }, false, none, now.Add(surveysRetry)},
		"fewer others run":                {time.Hour, none, never, func(s *Survey) { s.Others = func() int { return maxSurveys - 1 } }, true, fresh, never},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := surveyOf(root(tt.record, tt.requested))
			s.Interval = tt.interval
			if tt.change != nil {
				tt.change(&s)
			}
			var p Plan
			p.AddTask(s)
			var want []any
			if tt.create {
				want, tt.again = []any{Create{mountjobs.Survey, tt.next}}, now
			}
			if !reflect.DeepEqual(p.Steps, want) || !p.Again.Equal(tt.again) {
				t.Errorf("got %+v, want %+v", p, want)
			}
		})
	}
}

func surveyOf(root *corev1.PersistentVolumeClaim, jobs ...Job) Survey {
	return Survey{
		FileSystem: FileSystem{ID: fileSystem, Now: now, Root: root, Listed: true}, Jobs: jobs, Others: func() int { return 0 },
	}
}

func TestPlanOfASurveyJob(t *testing.T) {
	began := mountjobs.SurveyRecord{Began: ago(time.Hour), After: "/team/a", Failures: 1}
	outcome := func(state mountjobs.State, change func(*mountjobs.Outcome)) mountjobs.Outcome {
		name := mountjobs.Name{Kind: mountjobs.Survey, FileSystemID: fileSystem, Number: 1}
		o := mountjobs.Outcome{Status: mountjobs.Status{Name: name, State: state, Until: now.Add(time.Hour), Message: "killed"}, Pod: "pod"}
		if change != nil {
			change(&o)
		}
		return o
	}
	noPod := func(o *mountjobs.Outcome) { o.Pod = "" }
	retry := mountjobs.Backoff(wellknown.DefaultProvisionBackoff, 2)
	until := now.Add(time.Hour)
	none, never := mountjobs.SurveyRecord{}, time.Time{}
	continues := mountjobs.SurveyRecord{Began: began.Began, After: "/team/k"}
	failed := mountjobs.SurveyRecord{Began: began.Began, After: "/team/a", Failures: 2, Retry: now.Add(retry)}
	tests := map[string]struct {
		survey Job
		gone   bool
		want   string
		next   mountjobs.SurveyRecord
		again  time.Time
	}{
		"runs, unread":         {Job{Outcome: outcome(mountjobs.Running, nil)}, false, "read", none, until},
		"runs, just read":      {Job{Outcome: outcome(mountjobs.Running, nil), Log: Log{Next: now.Add(time.Second)}}, false, "", none, now.Add(time.Second)},
		"runs, is being read":  {Job{Outcome: outcome(mountjobs.Running, nil), Log: Log{Reading: true}}, false, "", none, until},
		"has no pod yet":       {Job{Outcome: outcome(mountjobs.Running, noPod)}, false, "", none, until},
		"its file system goes": {Job{Outcome: outcome(mountjobs.Running, nil)}, true, "delete", none, never},
		"ended, just read":     {Job{Outcome: outcome(mountjobs.Succeeded, nil), Log: Log{Next: now.Add(time.Second)}}, false, "read", none, never},
		"ended, is being read": {Job{Outcome: outcome(mountjobs.Succeeded, nil), Log: Log{Reading: true}}, false, "", none, never},
		"ended, cannot be read now": {
			Job{Outcome: outcome(mountjobs.Succeeded, nil), Log: Log{Next: now.Add(time.Second), failing: now}}, false, "", none, now.Add(time.Second),
		},
		"finished": {
			Job{Outcome: outcome(mountjobs.Succeeded, nil), Log: Log{After: "/team/z", Drained: true}}, false,
			"record", mountjobs.SurveyRecord{Began: began.Began, Ended: now}, never,
		},
		"finished, but its log is lost":        {Job{Outcome: outcome(mountjobs.Succeeded, noPod), Log: Log{After: "/team/k"}}, false, "record", continues, never},
		"finished, but its log cannot be read": {Job{Outcome: outcome(mountjobs.Succeeded, nil), Log: Log{After: "/team/k", Unreadable: true}}, false, "record", continues, never},
		"its log was full":                     {Job{Outcome: outcome(mountjobs.Finished, nil), Log: Log{After: "/team/k", Drained: true}}, false, "record", continues, never},
		"killed after it had counted":          {Job{Outcome: outcome(mountjobs.Lost, nil), Log: Log{After: "/team/k", Drained: true}}, false, "record", continues, never},
		"killed at once":                       {Job{Outcome: outcome(mountjobs.Lost, nil), Log: Log{After: "/team/a", Drained: true}}, false, "record, failed", failed, never},
		"hangs":                                {Job{Outcome: outcome(mountjobs.Stuck, noPod), Log: Log{After: "/team/a"}}, false, "record, failed", failed, never},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.survey.Job, tt.survey.Unreleased = surveyJob(began), true
			s := surveyOf(root(began, now), tt.survey)
			if s.Gone = tt.gone; tt.gone {
				s.Listed, s.NotReady = false, "it is being deleted"
			}
			var p Plan
			p.AddTask(s)
			got, next := namesOf(p)
			if got != tt.want || next != tt.next || !p.Again.Equal(tt.again) {
				t.Errorf("got %s of %+v, want %s", got, p, tt.want)
			}
		})
	}
}

// TestSurveyIsRecordedOnceRootClaimOrVolumeExists: the next root claim gets the record of the volume.
func TestSurveyIsRecordedOnceRootClaimOrVolumeExists(t *testing.T) {
	began := mountjobs.SurveyRecord{Began: ago(time.Hour), After: "/team/a"}
	goes := root(began, now)
	goes.DeletionTimestamp = &metav1.Time{Time: now}
	for name, tt := range map[string]struct {
		root   *corev1.PersistentVolumeClaim
		volume *corev1.PersistentVolume
		pod    string
		gone   bool
		want   string
	}{
		"neither":                                {nil, nil, "", false, ""},
		"the volume":                             {nil, &corev1.PersistentVolume{}, "", false, "record, failed"},
		"the claim":                              {root(began, now), nil, "", false, "record, failed"},
		"the claim goes":                         {goes, nil, "", false, ""},
		"the claim goes once the pod is gone":    {goes, nil, "pod", false, "record, failed"},
		"there will be none for its file system": {nil, nil, "", true, "record, failed"},
	} {
		s := surveyOf(tt.root, Job{
			Job: surveyJob(began), Unreleased: true,
			Outcome: mountjobs.Outcome{Status: mountjobs.Status{Name: mountjobs.Name{Kind: mountjobs.Survey}, State: mountjobs.Lost}, Pod: tt.pod}, Log: Log{After: began.After, Drained: true},
		})
		s.RootVolume, s.Listed = tt.volume, !tt.gone
		var p Plan
		p.AddTask(s)
		if got, _ := namesOf(p); got != tt.want || got == "" && p.Again.IsZero() {
			t.Errorf("%s: got %+v, want %q", name, p, tt.want)
		}
	}
}

func surveyJob(record mountjobs.SurveyRecord) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: "efs-usage-" + fileSystem + "-00001", UID: "survey", Annotations: map[string]string{wellknown.AnnotationSurvey: record.Encode()},
	}}
}

// namesOf names the steps of a plan, and returns the survey's record.
func namesOf(p Plan) (name string, next mountjobs.SurveyRecord) {
	var names []string
	for _, step := range p.Steps {
		switch step := step.(type) {
		case ReadLog:
			names = append(names, "read")
		case Record:
			names = append(names, "record")
			if len(step.Warnings) > 0 {
				names = append(names, "failed")
			}
			next = mountjobs.SurveyRecordOf(map[string]string{step.Annotation: step.Value})
		case Delete:
			names = append(names, "delete")
		}
	}
	return strings.Join(names, ", "), next
}
