package decide

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestVerdictOnAClaim names the cause, and keeps what was said until the claim is bound.
func TestVerdictOnAClaim(t *testing.T) {
	said := func(w *fixture) {
		w.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: wellknown.ConditionProvisioned, Reason: "Before", Message: "as before"}}
	}
	class := func(w *fixture) { w.Class.Parameters = map[string]string{"basePath": "/"} }
	before := Verdict{"Before", "as before"}
	binding := func(w *fixture) { w.Claim.Spec.VolumeName = "pvc-" + string(uid) }
	made := withVolume(newVolume(t))
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   Verdict // the message is a part of it
	}{
		"waits for a Job":                {nil, Verdict{status.WaitsForJob, "next mount Job of file system " + fs1}},
		"is in a Job":                    {[]func(*fixture){said, withAttempts(running(setup()))}, Verdict{status.DirectoryIsMade, "makes directory " + path}},
		"was cleaned up before":          {[]func(*fixture){withAttempts(running(cleanup()))}, Verdict{status.WaitsForJob, "before"}},
		"failed":                         {[]func(*fixture){withAttempts(ended(setup(), failed))}, Verdict{status.SetupFailed, "could not make the directory"}},
		"is given up":                    {[]func(*fixture){threshold, withAttempts(ended(try(setup(), 3), failed))}, Verdict{status.GivenUp, "gave up after 3"}},
		"of a class that is refused":     {[]func(*fixture){class}, Verdict{status.ClassRefused, "base_path"}},
		"is refused":                     {[]func(*fixture){func(w *fixture) { block := corev1.PersistentVolumeBlock; w.Claim.Spec.VolumeMode = &block }}, Verdict{status.ClaimRejected, "Block"}},
		"of no file system":              {[]func(*fixture){func(w *fixture) { w.Targets.FileSystems = nil }}, Verdict{status.WaitsForFileSystem, "no file system"}},
		"far from the file system":       {[]func(*fixture){onNode("b"), zonesOf("a")}, Verdict{status.WaitsForOtherNode, "zone"}},
		"its volume is created":          {[]func(*fixture){said, withAttempts(ended(setup(), done))}, before},
		"its volume exists":              {[]func(*fixture){said, made}, before},
		"is being bound":                 {[]func(*fixture){said, made, binding}, before},
		"is bound":                       {[]func(*fixture){boundClaim, made, said}, Verdict{}},
		"wants another provisioner":      {[]func(*fixture){said, func(w *fixture) { w.Class.Provisioner = "other" }}, Verdict{}},
		"asks another provisioner":       {[]func(*fixture){said, func(w *fixture) { w.Claim.Annotations[wellknown.AnnotationStorageProvisioner] = "other" }}, before},
		"waits for a Job, nothing known": {[]func(*fixture){said, nothingKnown}, before},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(newState(c.change...)).Verdict
			if got.Cause != c.want.Cause || !strings.Contains(got.Message, c.want.Message) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestVolumeSaysWhyItStays until an attempt has ended well.
func TestVolumeSaysWhyItStays(t *testing.T) {
	annotated := func(v *corev1.PersistentVolume) {
		v.Annotations[wellknown.AnnotationProblem] = "CleanupFailed: as before"
	}
	free := withVolume(newVolume(t, released, annotated))
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   string // what the annotation begins with from now on; "-" leaves it
	}{
		"its cleanup runs":   {[]func(*fixture){withoutClaim, free, withAttempts(running(cleanup()))}, "-"},
		"it has failed":      {[]func(*fixture){withoutClaim, free, withAttempts(ended(cleanup(), failed))}, "CleanupFailed: Job "},
		"it has succeeded":   {[]func(*fixture){withoutClaim, free, withAttempts(ended(cleanup(), done))}, "-"},
		"it waits for a Job": {[]func(*fixture){withoutClaim, free}, ""},
		"it is bound":        {[]func(*fixture){boundClaim, withVolume(newVolume(t, annotated))}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := "-"
			for _, change := range Decide(newState(c.change...)).Changes {
				if a, ok := change.(Annotate); ok {
					got, _ = a.Annotations[wellknown.AnnotationProblem].(string)
				}
			}
			if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
