package claims

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

var (
	waitsForJob = decide.Verdict{Cause: status.WaitsForJob, Message: "the next one"}
	inJob       = decide.Verdict{Cause: status.DirectoryIsMade, Message: "Job 1"}
	failed      = decide.Verdict{Cause: status.SetupFailed, Message: "it is taken"}
	denied      = decide.Verdict{Cause: status.VolumeRefused, Message: "no"}
	otherNode   = decide.Verdict{Cause: status.WaitsForOtherNode, Message: "zone"}
	noJob       = decide.Verdict{Cause: status.NoMountJob, Message: "quota"}
)

// waitingFor is a state whose claim has a condition, unless the verdict is zero.
func waitingFor(shown decide.Verdict) decide.State {
	claim := unbound(uid, "efs")
	if shown != (decide.Verdict{}) {
		claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
			Type: wellknown.ConditionProvisioned, Status: corev1.ConditionFalse, Reason: shown.Cause, Message: shown.Message,
		}}
	}
	return decide.State{UID: uid, Claim: claim, Now: time.Now()}
}

// TestConditionSaysWhatLasts: a problem after ten seconds, progress after a minute.
func TestConditionSaysWhatLasts(t *testing.T) {
	type step struct {
		after   time.Duration // since the step before
		verdict decide.Verdict
		shown   decide.Verdict
		again   time.Duration
	}
	none := decide.Verdict{}
	for name, steps := range map[string][]step{
		"served within ten seconds":    {{0, waitsForJob, none, time.Minute}, {9 * time.Second, none, none, 0}},
		"refused":                      {{0, failed, none, 10 * time.Second}, {9 * time.Second, failed, none, time.Second}, {time.Second, failed, failed, 0}},
		"fails after it has waited":    {{0, waitsForJob, none, time.Minute}, {10 * time.Second, failed, failed, 0}},
		"in a long queue":              {{0, waitsForJob, none, time.Minute}, {time.Minute, waitsForJob, waitsForJob, 0}, {time.Second, inJob, inJob, 0}},
		"tried again":                  {{0, failed, none, 10 * time.Second}, {10 * time.Second, failed, failed, 0}, {time.Minute, inJob, failed, time.Minute}, {time.Second, failed, failed, 0}},
		"tried again for long":         {{0, failed, none, 10 * time.Second}, {10 * time.Second, failed, failed, 0}, {time.Minute, inJob, failed, time.Minute}, {time.Minute, inJob, inJob, 0}},
		"given back to the scheduler":  {{0, otherNode, none, 10 * time.Second}, {time.Second, none, none, 9 * time.Second}, {9 * time.Second, none, otherNode, 0}, {time.Second, none, otherNode, 0}},
		"fails otherwise":              {{0, failed, none, 10 * time.Second}, {10 * time.Second, failed, failed, 0}, {time.Second, noJob, noJob, 0}},
		"served after it was refused":  {{0, failed, none, 10 * time.Second}, {time.Minute, failed, failed, 0}, {time.Second, none, none, 0}},
		"refused, served, and refused": {{0, failed, none, 10 * time.Second}, {time.Minute, none, none, 0}, {time.Minute, failed, none, 10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			c, now, shown := newConditions(), time.Now(), none
			for i, s := range steps {
				now = now.Add(s.after)
				var again time.Duration
				shown, again = c.next(waitingFor(shown), decide.Plan{Verdict: s.verdict}, now)
				if shown != s.shown || again != s.again {
					t.Errorf("step %d: got %+v and %s, want %+v and %s", i, shown, again, s.shown, s.again)
				}
			}
		})
	}
}

// TestConditionSaysWhatOtherLoopsSay, and the apiserver, as long as it is so.
func TestConditionSaysWhatOtherLoopsSay(t *testing.T) {
	later := time.Now().Add(time.Hour)
	c := newConditions()
	says := func(p decide.Plan) decide.Verdict {
		c.next(waitingFor(decide.Verdict{}), p, later.Add(-time.Hour))
		verdict, _ := c.next(waitingFor(decide.Verdict{}), p, later)
		return verdict
	}
	creates := planOf(decide.CreateVolume{})
	creates.Verdict = waitsForJob
	volume := volumes.VolumeName(uid)
	if changed := c.block("fs-1", map[string]decide.Verdict{volume: noJob}); len(changed) != 1 {
		t.Errorf("changed: %q", changed)
	}
	if changed := c.block("fs-1", map[string]decide.Verdict{volume: noJob}); len(changed) != 0 {
		t.Errorf("changed again: %q", changed)
	}
	c.refuse(uid, denied)
	for _, tt := range []struct {
		plan decide.Plan
		want decide.Verdict
	}{{decide.Plan{Verdict: waitsForJob}, noJob}, {decide.Plan{Verdict: failed}, failed}, {creates, denied}} {
		if got := says(tt.plan); got != tt.want {
			t.Errorf("got %+v, want %+v", got, tt.want)
		}
	}
	c.refuse(uid, decide.Verdict{})
	if changed := c.block("fs-1", nil); len(changed) != 1 {
		t.Errorf("changed: %q", changed)
	}
	if got := says(creates); got != waitsForJob {
		t.Errorf("got %+v of what is over", got)
	}
}

// TestConditionIsWrittenAndRemoved by one write each, and beside those of others.
func TestConditionIsWrittenAndRemoved(t *testing.T) {
	other := corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue}
	claim := unbound(uid, "efs")
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{other}
	client := fake.NewClientset(claim)
	loop := loopOf(t, record.NewFakeRecorder(10), client)
	stored := func() *corev1.PersistentVolumeClaim {
		object, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	for _, want := range []decide.Verdict{failed, failed, denied, {}, {}} {
		client.ClearActions()
		now := stored()
		before := decide.VerdictOn(now)
		client.ClearActions()
		if err := loop.writeCondition(t.Context(), decide.State{UID: uid, Claim: now, Now: time.Now()}, want); err != nil {
			t.Fatal(err)
		}
		for _, action := range client.Actions() {
			if action.GetSubresource() != "status" {
				t.Errorf("got %v", action)
			}
		}
		if writes := len(client.Actions()); (writes == 1) != (before != want) {
			t.Errorf("%d writes from %+v to %+v", writes, before, want)
		}
		if got := stored(); decide.VerdictOn(got) != want || got.Status.Conditions[len(got.Status.Conditions)-1].Type == "" || !hasResizing(got) {
			t.Errorf("got %+v, want %+v", got.Status.Conditions, want)
		}
	}
}

func hasResizing(claim *corev1.PersistentVolumeClaim) bool {
	for _, c := range claim.Status.Conditions {
		if c.Type == corev1.PersistentVolumeClaimResizing {
			return true
		}
	}
	return false
}

// TestRefusedVolumeIsTheCondition of its claim until the apiserver takes it.
func TestRefusedVolumeIsTheCondition(t *testing.T) {
	claim := unbound(uid, "efs")
	claim.Name = "cart"
	loop := newLoop(t, record.NewFakeRecorder(10), claim, "create", errDenied)
	state := decide.State{UID: uid, Claim: claim, Targets: usable()}
	plan := planOf(decide.CreateVolume{Attempt: decide.Attempt{Operation: setup(t), FileSystemID: "fs-1"}})
	if err := loop.apply(t.Context(), state, plan); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	if got := loop.conditions.complete(state, plan); got.Cause != status.VolumeRefused {
		t.Errorf("got %+v", got)
	}
	loop = loopOf(t, record.NewFakeRecorder(10), fake.NewClientset(claim))
	loop.conditions.refuse(uid, denied)
	if err := loop.apply(t.Context(), state, plan); err != nil {
		t.Fatal(err)
	}
	if got := loop.conditions.complete(state, plan); got != (decide.Verdict{}) {
		t.Errorf("got %+v after it was taken", got)
	}
}

// TestConditionsDelayNoClaim: where a file system is not there, thousands of claims get a condition at once.
func TestConditionsDelayNoClaim(t *testing.T) {
	client := fake.NewClientset()
	loop := loopOf(t, record.NewFakeRecorder(10), client)
	loop.gatherer.Targets = func() targets.Snapshot { return targets.Snapshot{Known: true} }
	loop.options.Rediscover = func() {}
	claim := unbound(uid, "efs")
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	addToCaches(t, loop, claim)
	addToCaches(t, loop, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "efs"}, Provisioner: wellknown.DefaultProvisioner, Parameters: map[string]string{"default_file_system_id": "fs-0000000000000000f"},
	})
	synctest.Test(t, func(t *testing.T) {
		var written []types.UID
		loop.verdicts = recording(&written)
		var again time.Duration
		var err error
		whileRunning(t, loop.verdicts, func() {
			if again, err = loop.sync(t.Context(), uid); err == nil {
				<-time.After(again)
				_, err = loop.sync(t.Context(), uid)
			}
		})
		if err != nil || again != conditionDelay || len(written) != 1 || len(client.Actions()) != 0 {
			t.Errorf("%d conditions after %s, %d requests by the sync itself, error %v; want one after %s, and none", len(written), again, len(client.Actions()), err, conditionDelay)
		}
	})
}

// TestRefusalsDelayNoClaim: where a class is refused, thousands of claims are annotated at once.
func TestRefusalsDelayNoClaim(t *testing.T) {
	claim := unbound(uid, "efs")
	client := fake.NewClientset(claim)
	loop := loopOf(t, record.NewFakeRecorder(10), client)
	loop.gatherer.Targets = func() targets.Snapshot { return targets.Snapshot{Known: true} }
	addToCaches(t, loop, claim)
	addToCaches(t, loop, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "efs"}, Provisioner: wellknown.DefaultProvisioner, Parameters: map[string]string{"unheard_of": "x"},
	})
	synctest.Test(t, func(t *testing.T) {
		var urgent []types.UID
		loop.queue, loop.verdicts = recording(&urgent), queueTo(loop.syncVerdict)
		whileRunning(t, loop.queue, func() {
			whileRunning(t, loop.verdicts, func() {
				again, err := loop.decide(t.Context(), uid)
				if err != nil || again != recheck {
					t.Errorf("decided again after %s, error %v; want %s: it may be accepted then, which is not written with verdicts", again, err, recheck)
				}
			})
		})
		got, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err != nil || len(urgent) != 0 || got.Annotations[wellknown.AnnotationRejected] != wellknown.ValueTrue {
			t.Errorf("%d claims in the queue of volumes, the claim has %v, error %v; want none, and that it is rejected", len(urgent), got.Annotations, err)
		}
	})
}
