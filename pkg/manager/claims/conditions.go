package claims

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const (
	// conditionDelay passes before a claim's condition says why it waits: most wait for less.
	conditionDelay = 10 * time.Second
	// progressDelay is the same for a claim with which nothing is wrong: the conditions of a burst would compete
	// with its volumes. It is also how long a problem is shown after something is done about it, so that a setup
	// that is tried again and again does not change its claim each time.
	progressDelay = time.Minute
)

// conditions remembers what plans do not know of the claims that wait.
type conditions struct {
	mu      sync.Mutex
	waiting map[types.UID]waiting                // guarded by mu
	refused map[types.UID]decide.Verdict         // by the apiserver; guarded by mu
	blocked map[string]map[string]decide.Verdict // by file system, then volume; guarded by mu
}

// waiting is since when a claim waits, since when something is done for it, and what was said last.
type waiting struct {
	since, progress time.Time
	last            decide.Verdict
}

func newConditions() conditions {
	return conditions{
		waiting: map[types.UID]waiting{}, refused: map[types.UID]decide.Verdict{}, blocked: map[string]map[string]decide.Verdict{},
	}
}

// block replaces what keeps operations of a file system from a Job, by volume, and returns the changed volumes.
func (c *conditions) block(fileSystemID string, now map[string]decide.Verdict) (changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.blocked[fileSystemID]
	for volume := range sets.KeySet(before).Union(sets.KeySet(now)) {
		if before[volume] != now[volume] { // none is the zero Verdict
			changed = append(changed, volume)
		}
	}
	c.blocked[fileSystemID] = maps.Clone(now)
	if len(now) == 0 {
		delete(c.blocked, fileSystemID)
	}
	return changed
}

// refuse records that the apiserver refuses a claim's volume; the zero Verdict says that it does not.
func (c *conditions) refuse(claim types.UID, verdict decide.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if verdict == (decide.Verdict{}) {
		delete(c.refused, claim)
		return
	}
	c.refused[claim] = verdict
}

// next returns the verdict that the claim's condition is to have from now on, and when that may be another one
// although nothing happens; 0 is never.
//
//	plan's verdict  condition  shown
//	none            any        none
//	problem         none       once the claim has waited for conditionDelay
//	problem         other      at once
//	progress        any        once the progress has lasted for progressDelay
func (c *conditions) next(s decide.State, plan decide.Plan, now time.Time) (verdict decide.Verdict, again time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, known := c.waiting[s.UID]
	verdict, shown := c.complete(s, plan), decide.VerdictOn(s.Claim)
	if last := cmp.Or(w.last, shown); verdict == (decide.Verdict{}) && last.Cause == status.WaitsForOtherNode && waitsForNode(s.Claim) {
		verdict = last // the scheduler is choosing
	}
	if s.Claim == nil {
		delete(c.refused, s.UID)
	}
	if s.Claim == nil || verdict == (decide.Verdict{}) {
		delete(c.waiting, s.UID)
		return decide.Verdict{}, 0
	}
	w.last = verdict
	if !known {
		w.since = now
	}
	due := w.since.Add(conditionDelay)
	switch {
	case !status.IsProgress(verdict.Cause):
		w.progress = time.Time{}
	case w.progress.IsZero():
		w.progress = now
		fallthrough
	default:
		due = w.progress.Add(progressDelay)
	}
	c.waiting[s.UID] = w
	problemShown := shown != (decide.Verdict{}) && !status.IsProgress(verdict.Cause)
	if problemShown || !due.After(now) {
		return verdict, 0
	}
	return shown, due.Sub(now)
}

func waitsForNode(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.Spec.VolumeName == "" && volumes.AskedProvisioner(claim) != "" && volumes.SelectedNode(claim) == ""
}

// complete returns a plan's verdict with what the jobs loop and the apiserver say. The caller holds mu.
func (c *conditions) complete(s decide.State, plan decide.Plan) decide.Verdict {
	if refused, ok := c.refused[s.UID]; ok && plan.CreatesVolume() {
		return refused
	}
	if !status.IsProgress(plan.Verdict.Cause) {
		plan.Verdict.Message = events.Cut(plan.Verdict.Message)
		return plan.Verdict
	}
	for _, blocked := range c.blocked {
		if verdict, ok := blocked[volumes.VolumeName(s.UID)]; ok {
			return verdict
		}
	}
	return plan.Verdict
}

// Blocked has conditions of claims say what keeps a file system's operations from a Job, by volume. It replaces
// what was said of the file system before.
func (c *Controller) Blocked(fileSystemID string, verdicts map[string]decide.Verdict) {
	for _, volume := range c.conditions.block(fileSystemID, verdicts) {
		if uid, ok := volumes.ClaimOfName(volume); ok {
			c.enqueue(uid)
		}
	}
}

// writeCondition writes a claim's condition if it is not as it is to be. A claim that waits for nothing has none.
func (c *Controller) writeCondition(ctx context.Context, s decide.State, verdict decide.Verdict) error {
	if s.Claim == nil || verdict == decide.VerdictOn(s.Claim) {
		return nil
	}
	condition := map[string]any{"type": wellknown.ConditionProvisioned}
	if verdict == (decide.Verdict{}) {
		condition["$patch"] = "delete"
	} else {
		condition["status"], condition["reason"], condition["message"] = corev1.ConditionFalse, verdict.Cause, verdict.Message
		condition["lastTransitionTime"] = since(s)
	}
	return objects.Patch(ctx, c.client, s.Claim, map[string]any{"status": map[string]any{"conditions": []any{condition}}}, "status")
}

func since(s decide.State) metav1.Time {
	for _, c := range s.Claim.Status.Conditions {
		if c.Type == wellknown.ConditionProvisioned && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime
		}
	}
	return metav1.NewTime(s.Now)
}
