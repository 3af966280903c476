package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/directories"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Used says whether an attempt of a Job that has ended is history: whatever should follow from
// it has, so the Job may be forgotten. object is the volume, nil while there is none; superseded
// says that a newer Job has an operation for it.
//
//	kind             result   used
//	any              any      when superseded
//	setup, restore   done     when there is a volume
//	                 lost     not before it is tried again
//	                 failed   yes: it counts as long as the Job is there
//	adoption         done     when the volume is adopted, or gone
//	cleanup          done     when the volume is gone, or wants no cleanup any more
//	all others       any      yes: they are asked for again by what is there
func (s Settings) Used(a Attempt, object *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, superseded bool) bool {
	switch {
	case a.running():
		return false
	case superseded:
		return true
	case isProvisioning(a.Operation):
		return a.failed() || a.done() && object != nil
	case a.Operation.Adopt && a.done():
		return object == nil || volumes.Read(object, s.Provisioner).Kind != volumes.Original
	case isCleanup(a.Operation) && a.done():
		return object == nil || !volumes.NeedsCleanup(object, claim, s.Provisioner)
	}
	return true
}

// FillsTrash says that an attempt has left something to sweep.
func FillsTrash(a Attempt) bool {
	return isCleanup(a.Operation) && a.Result.State == directories.Done && a.Result.Reason == ""
}
