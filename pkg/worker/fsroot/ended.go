package fsroot

import (
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// Action is what an operation has done, for the log.
type Action string

// The actions.
const (
	Created  Action = "created"  // the directory
	Recorded Action = "recorded" // a new owner of a directory that was there
	Restored Action = "restored" // the directory, from the trash
	Cloned   Action = "cloned"   // the directory of another volume
	Trashed  Action = "trashed"  // the directory
	Kept     Action = "kept"     // the directory, whose owner is gone
	Released Action = "released" // an owner
	Nothing  Action = "nothing"  // there was neither directory nor owner any more
	Blocked  Action = "blocked"  // by other owners
	Refused  Action = "refused"  // by the rules of the ledger, or because of what is at the path
	Failed   Action = "failed"   // at the file system
	Stopped  Action = "stopped"  // before it was done
)

// Ended says how an operation has ended.
type Ended struct {
	Operation operations.Operation
	Result    operations.Result
	Action    Action
	Duration  time.Duration
}
