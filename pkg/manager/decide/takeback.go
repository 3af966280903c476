package decide

import (
	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// takesBack reports whether an operation makes a volume an owner again after its cleanup had begun.
func takesBack(o operations.Operation) bool { return o.Adopt && !o.Made && volumes.GivenTo(o) == "" }

// takeBack makes a volume an owner again whose cleanup has begun and is called off: the volume is bound again, or
// its policy is Retain. Its data is safe before that, too, but no claim can be a copy of it, and no rebuild makes
// its volume again.
//
//	newest cleanup, or taking back    what is done
//	none, or done                     nothing
//	running                           nothing
//	a cleanup that is not done        asked for
//	found no directory                nothing: the cleanup was done
//	lost, failed                      asked for after a wait, and reported
func (p volumePlanner) takeBack() {
	v := p.volume
	if v.IsGiven(v.Claim) {
		return // the gift takes it back, too
	}
	last := p.newest(v.Name, v.Object.CreationTimestamp.Time, func(o operations.Operation) bool { return isCleanup(o) || takesBack(o) || volumes.GivenTo(o) != "" })
	switch {
	case last.Job == "", last.done(), last.foundNothing(), v.Problem != "", v.Object.DeletionTimestamp != nil:
		return
	case last.running():
		p.awaitEnd(last)
		return
	case isCleanup(last.Operation):
		last = Attempt{}
	}
	operation := volumes.Adoption(v.Volume, p.Cluster)
	operation.Made = false // it keeps the right that its entry has
	operation.Class = v.Object.Spec.StorageClassName
	operation.ShareAcrossNamespaces, operation.ShareAcrossClusters = true, true // as it did before
	p.schedule(operation, last, "take the cleanup back")
}

// foundNothing reports whether there was no directory that the volume could have back.
func (a Attempt) foundNothing() bool {
	return takesBack(a.Operation) && a.failed() && a.Result.Reason == operations.NotFound
}
