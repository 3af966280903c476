package sharedvolumes

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
)

// says is a plan with no step: what the status should be, and an event for what people have to do
// something about.
func (s state) says(phase v1alpha1.Phase, reason, message string) plan {
	p := plan{status: s.object.Status.DeepCopy()}
	p.status.Phase, p.status.Message, p.status.ObservedGeneration = phase, message, s.object.Generation
	p.status.ClaimRef = nil
	if s.ownsClaim() {
		p.status.ClaimRef = &v1alpha1.ClaimReference{Name: s.claim.Name}
	} else if s.object.DeletionTimestamp == nil {
		p.status.ClaimRef = s.object.Status.ClaimRef // it is made anew
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: s.object.Generation, LastTransitionTime: metav1.NewTime(s.now),
	}
	if phase == v1alpha1.Ready {
		condition.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&p.status.Conditions, condition)
	if phase == v1alpha1.Failed {
		p.warning = message
	}
	return p
}
