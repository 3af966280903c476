package inspect

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
)

// counted adds a claim of 1 GiB that holds something.
func counted(s *Snapshot, name string, record mountjobs.UsageRecord) *corev1.PersistentVolumeClaim {
	claim := newClaim(name, "")
	claim.Annotations[wellknown.AnnotationUsage] = record.Encode()
	s.Claims = append(s.Claims, claim)
	return claim
}

func text(t *testing.T, format string, usage Usage) string {
	t.Helper()
	var out strings.Builder
	if err := printing.Write(&out, format, usage, now); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestUsageListsTheLargestFirst(t *testing.T) {
	s := healthy(t) // has team/data, which was never counted
	at := now.Add(-time.Hour)
	counted(s, "small", mountjobs.UsageRecord{Bytes: 5000, Files: 2, At: at})
	counted(s, "large", mountjobs.UsageRecord{Bytes: 3 << 30, Files: 12345, At: at})
	counted(s, "deep", mountjobs.UsageRecord{Bytes: 1 << 20, Files: 7, At: at, Incomplete: "it is nested\ntoo deep\x1b[2J"})
	counted(s, "empty", mountjobs.UsageRecord{At: at})
	counted(s, "forged", mountjobs.UsageRecord{}).Annotations[wellknown.AnnotationUsage] = "\x1b[2J"
	counted(s, "elsewhere", mountjobs.UsageRecord{Bytes: 1, At: at}).Namespace = "other"
	want := `NAMESPACE   CLAIM    FILE SYSTEM            REQUESTED   USED      FILES   COUNTED   NOTE
team        large                           1.0 GiB     3.0 GiB   12345   60m ago   over its request
team        deep                            1.0 GiB     1.0 MiB   7       60m ago   at least: it is nested too deep?[2J
team        small                           1.0 GiB     4.9 KiB   2       60m ago
team        empty                           1.0 GiB     0 B       0       60m ago
team        data     ` + testFS + `   1.0 GiB     -         -       never
team        forged                          1.0 GiB     -         -       never
`
	usage := NewUsage(s, "team")
	if got := text(t, "", usage); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := text(t, "json", usage); !strings.Contains(got, `"usedBytes": 3221225472`) || !strings.Contains(got, `"overRequest": true`) || strings.Contains(got, "\x1b") {
		t.Errorf("JSON:\n%s", got)
	}
	if got := text(t, "yaml", usage); !strings.Contains(got, "files: 12345") || strings.Contains(got, "\x1b") {
		t.Errorf("YAML:\n%s", got)
	}
	if all := NewUsage(s, ""); len(all.Claims) != 7 || usage.Level() != OK {
		t.Errorf("%d claims, level %s", len(all.Claims), usage.Level())
	}
}

// TestHostileFileNamesAreHarmlessInUsage: a survey names the file that it could not count.
func TestHostileFileNamesAreHarmlessInUsage(t *testing.T) {
	s := healthy(t)
	name := "x\x1b[2J\nFAKE: 0 B\r\u202e\xff" + strings.Repeat("y", 240)
	counted(s, "attacked", mountjobs.UsageRecord{Bytes: 1, Files: 1, At: now, Incomplete: "lstat " + name + ": permission denied"})
	s.Unread = []Unread{{Verb: "list", Resource: claimResource, Name: name}}
	for _, format := range append(printing.Formats(), "") {
		expectHarmless(t, "usage "+format, text(t, format, NewUsage(s, "")))
	}
}

func TestUsageNamesTheRightsThatAreMissing(t *testing.T) {
	s := healthy(t)
	s.Unread = []Unread{{Verb: "list", Resource: claimResource}}
	if all := NewUsage(s, ""); all.Level() != Unknown || !strings.Contains(text(t, "", all), "list persistentvolumeclaims in all namespaces") {
		t.Errorf("level %s:\n%s", all.Level(), text(t, "", all))
	}
	if own := NewUsage(s, "team"); own.Level() != OK { // the namespace was read by itself
		t.Errorf("level %s", own.Level())
	}
	if got := text(t, "json", NewUsage(&Snapshot{Now: now}, "")); !strings.Contains(got, `"claims": []`) {
		t.Errorf("JSON:\n%s", got)
	}
}

func TestSurveyOf(t *testing.T) {
	requested := now.Add(-45 * time.Second)
	rootOf := func(s *Snapshot) *corev1.PersistentVolumeClaim { return s.Claims[1] }
	record := func(r mountjobs.SurveyRecord) func(*testing.T, *Snapshot) {
		return func(_ *testing.T, s *Snapshot) {
			rootOf(s).Annotations = map[string]string{wellknown.AnnotationSurvey: r.Encode()}
		}
	}
	failed := func(_ *testing.T, s *Snapshot) {
		tableProblem(s, wellknown.EventSurveyFailed, "Job x has counted no volume: killed", time.Second)
	}
	tests := map[string]struct {
		edit            func(*testing.T, *Snapshot)
		finished, stuck bool
		state           string
	}{
		"finished":        {record(mountjobs.SurveyRecord{Began: requested, Ended: now}), true, false, ""},
		"finished before": {record(mountjobs.SurveyRecord{Began: requested.Add(-time.Second), Ended: now}), false, false, "waits for the manager"},
		"not finished":    {record(mountjobs.SurveyRecord{Began: requested, After: "/a"}), false, false, "waits for the manager"},
		"failed": {func(t *testing.T, s *Snapshot) {
			addEndedSurvey(t, s)
			s.Jobs[len(s.Jobs)-1].Finalizers = nil
			failed(t, s)
		}, false, true, "counted no volume: killed"},
		"failed before": {failed, false, false, "waits for the manager"},
		"no root claim": {func(_ *testing.T, s *Snapshot) { s.Claims = s.Claims[:1] }, false, true, "no root claim"},
		"runs":          {func(t *testing.T, s *Snapshot) { run(s, addSurvey(t, s)) }, false, false, "efs-usage-" + testFS + "-00001 runs"},
		"cannot mount": {func(t *testing.T, s *Snapshot) {
			waitsForMount(s, run(s, addSurvey(t, s)), "mount.nfs: Connection refused")
		}, false, true, "Connection refused"},
		"ended, and not recorded yet": {func(t *testing.T, s *Snapshot) { addEndedSurvey(t, s) }, false, false, "has not recorded"},
		"ended, and never recorded": {func(t *testing.T, s *Snapshot) {
			addEndedSurvey(t, s)
			s.Now = now.Add(time.Hour)
		}, false, true, "has not recorded"},
		"the manager is missing": {func(_ *testing.T, s *Snapshot) { s.Now = now.Add(time.Hour) }, false, true, "has not begun it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			tt.edit(t, s)
			state, stuck := SurveyOf(s, testFS, requested)
			if (state == "") != tt.finished || stuck != tt.stuck || !strings.Contains(state, tt.state) {
				t.Errorf("got %q, stuck: %v", state, stuck)
			}
		})
	}
}

func addEndedSurvey(t *testing.T, s *Snapshot) {
	t.Helper()
	job := addSurvey(t, s)
	pod := run(s, job)
	job.CreationTimestamp = metav1.Time{Time: now}
	pod.CreationTimestamp = metav1.Time{Time: now}
	pod.Status.Phase = corev1.PodSucceeded
	job.Status.Succeeded = 1
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: now}}}
}

func addSurvey(t *testing.T, s *Snapshot) *batchv1.Job {
	t.Helper()
	job, err := mountjobs.Build(mountjobs.Spec{
		Kind: mountjobs.Survey, Settings: mountjobs.Settings{Namespace: s.Namespace, Image: "image"}, FileSystemID: testFS, Number: 1,
		Survey: mountjobs.SurveyRecord{Began: now},
	})
	if err != nil {
		t.Fatal(err)
	}
	job.UID, job.CreationTimestamp = "survey-uid", metav1.NewTime(now.Add(-40*time.Second))
	s.Jobs = append(s.Jobs, job)
	return job
}

func TestFileSystemsOfClaims(t *testing.T) {
	s := healthy(t)
	if got, err := FileSystemsOf(s, NewUsage(s, "team")); err != nil || len(got) != 1 || got[0] != testFS {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := FileSystemsOf(s, NewUsage(s, "empty")); err != nil || len(got) != 0 {
		t.Errorf("got %q, %v of a namespace without claims", got, err)
	}
	s.Volumes, s.Unread = nil, []Unread{{Verb: "list", Resource: volumeResource}}
	if got, err := FileSystemsOf(s, NewUsage(s, "team")); err != nil || len(got) != 1 {
		t.Errorf("got %q, %v without the right to read volumes", got, err)
	}
	s.Claims = s.Claims[:1] // without the root claim
	s.Unread = append(s.Unread, Unread{Verb: "list", Resource: claimResource, Namespace: s.Namespace})
	if got, err := FileSystemsOf(s, NewUsage(s, "team")); err == nil || !strings.Contains(err.Error(), "list persistentvolumes in all namespaces, nor to list persistentvolumeclaims in namespace "+s.Namespace) {
		t.Errorf("got %q, %v without the right to read root claims", got, err)
	}
}

func TestStateOfARunningSurveyChangesNotWithTime(t *testing.T) {
	s := healthy(t)
	run(s, addSurvey(t, s))
	before, stuckBefore := SurveyOf(s, testFS, now.Add(-45*time.Second))
	s.Now = now.Add(2 * time.Second)
	if after, stuck := SurveyOf(s, testFS, now.Add(-45*time.Second)); after != before || stuck != stuckBefore {
		t.Errorf("%q became %q, stuck: %v", before, after, stuck)
	}
}
