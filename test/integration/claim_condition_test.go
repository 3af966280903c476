//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
)

// TestWaitingClaimSaysWhyInItsStatus until it is bound.
func TestWaitingClaimSaysWhyInItsStatus(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	waits := f.NewClaim("waits", f.classOn("unheard-of", "fs-0"))
	refused := f.NewClaim("refused", f.NewClass("bad-perms", map[string]string{"directory_perms": "rwx"}).Name)
	served := f.NewClaim("served", f.classOn("fine", f.NewFileSystem()))
	f.waitForProvisioned(served)
	f.expectVerdict(waits, status.WaitsForFileSystem)
	f.expectVerdict(refused, status.ClassRefused)
	f.expectVerdict(served, "")
}

// expectVerdict waits for the cause in a claim's condition, "" for none.
func (f *fixture) expectVerdict(claim *corev1.PersistentVolumeClaim, cause string) {
	f.Helper()
	f.Eventually(fmt.Sprintf("claim %s says %q", claim.Name, cause), func(ctx context.Context) error {
		now, err := f.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err == nil && decide.VerdictOn(now).Cause != cause {
			err = fmt.Errorf("its conditions are %+v", now.Status.Conditions)
		}
		return err
	})
}

// TestManagerChangesNoConditionOfOthers: RBAC lets it write the whole status of every claim.
func TestManagerChangesNoConditionOfOthers(t *testing.T) {
	env := newEnvWithPolicies(t)
	claim := env.NewClaim("guarded", env.Named("no-class"))
	manager := managerClient(env, wellknown.Namespace)
	set := func(ctx context.Context, kind string) error {
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"False","reason":"Any","message":"any"}]}}`, kind)
		_, err := manager.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(
			ctx, claim.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return err
	}
	const refusal = "efs-manager may change no condition of a claim but its own"
	waitForRefusal(env, refusal, func(ctx context.Context) error { return set(ctx, "ModifyingVolume") })
	for _, own := range []string{wellknown.ConditionProvisioned, string(corev1.PersistentVolumeClaimResizing)} {
		if err := set(t.Context(), own); err != nil {
			t.Errorf("%s: %v", own, err)
		}
	}
}
