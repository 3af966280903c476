// Package operations is the contract between the manager and mountjob: the operations that a mount
// Job carries out, and the report that its pod leaves in the termination message.
//
//	manager --Encode--> the Job's annotation --Decode--> mountjob
//	manager <--DecodeReport-- the termination message <--Report.Encode-- mountjob
//
// A sweep Job has no operations, and its termination message is a SweepReport.
package operations

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Kind says what an operation does.
type Kind string

// The kinds of operations.
const (
	// Setup makes the directory of a volume, or makes a directory that exists the volume's.
	Setup Kind = "setup"
	// Restore makes a volume of a directory in the trash.
	Restore Kind = "restore"
	// Clone makes a volume of a copy of another one. It has a Job of its own, because it may take hours.
	Clone Kind = "clone"
	// Cleanup drops the owner; when it was the last one, the directory goes to the trash.
	Cleanup Kind = "cleanup"
	// Release drops an owner whose volume and claim no longer exist. Its data counts as retained:
	// no cleanup removes the directory from now on.
	Release Kind = "release"
)

// Owner is a volume and the claim that it is for. The ledger has an entry for each owner of a directory.
type Owner struct {
	// Volume is the PersistentVolume's name.
	Volume string `json:"volume,omitempty"`
	// Cluster is the uid of the cluster's namespace kube-system.
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"ns,omitempty"`
	Claim     string `json:"claim,omitempty"`
	ClaimUID  string `json:"uid,omitempty"`
	// NamespaceUID and Class go into the entry that a setup or restore writes; "" is unknown. They
	// do not identify the owner: entries of earlier versions lack them.
	NamespaceUID string `json:"nsUID,omitempty"`
	Class        string `json:"class,omitempty"`
}

// Directory says how a new directory is made. One that exists keeps its mode and owner.
type Directory struct {
	// Mode is octal, as in the class parameter directory_perms. The default depends on AllocateGID.
	Mode string `json:"mode,omitempty"`
	UID  int    `json:"user,omitempty"`
	GID  int    `json:"group,omitempty"`
	// AllocateGID gives the directory a group that no other one of the file system has, from GIDMin to GIDMax.
	AllocateGID bool `json:"allocateGID,omitempty"`
	GIDMin      int  `json:"gidMin,omitempty"` // 0 is the default
	GIDMax      int  `json:"gidMax,omitempty"` // 0 is the default
}

// Rules say which directories a setup may use although they are not new.
type Rules struct {
	ShareAcrossNamespaces bool `json:"shareAcrossNamespaces,omitempty"`
	ShareAcrossClusters   bool `json:"shareAcrossClusters,omitempty"`
	// RefuseExisting refuses a directory that has content and no owner.
	RefuseExisting bool `json:"refuseExisting,omitempty"`
}

// Source says what a clone copies. The ledger must have it as an owner of SourcePath, in the cluster and
// the namespace of the operation.
type Source struct {
	SourcePath     string `json:"from,omitempty"`
	SourceVolume   string `json:"fromVolume,omitempty"`
	SourceClaim    string `json:"fromClaim,omitempty"` // its name, for messages
	SourceClaimUID string `json:"fromUID,omitempty"`
}

// Operation is what the manager wants done for one volume.
type Operation struct {
	Kind Kind `json:"do"`
	Owner
	// Path is the volume's directory, counted from the file system's root.
	Path string `json:"path,omitempty"`

	Directory // of a setup
	Rules     // of a setup; a restore needs ShareAcrossNamespaces only

	// Size, of an operation that adds an owner, is what its claim requests in bytes, which servers of one's own
	// enforce; 0 leaves what the ledger has.
	Size int64 `json:"size,omitempty"`

	// Adopt, in a setup, records the owner of a directory that must exist, and changes nothing.
	Adopt bool `json:"adopt,omitempty"`
	// Made, with Adopt, says that the original system made the directory, so that a cleanup may remove it.
	Made bool `json:"made,omitempty"`
	// TakeOver, with Adopt, is the uid of a cluster whose entry for this volume and claim becomes one of
	// Cluster, and hands over the right to remove the directory, if it has it and Made is set. Without
	// such an entry, or a mark of its retained data, there is nothing to take over. Only an administrator
	// may want that, so that no batch of the manager has it.
	TakeOver string `json:"-"`
	// Keep, in a cleanup, is how long the trash keeps the directory: a duration, or "forever".
	Keep string `json:"keep,omitempty"`
	// LeaveToOthers, in a cleanup, drops the owner although other volumes of this cluster own the directory, of which
	// one exists. Without it the cleanup is blocked: so the manager can find owners whose volumes no longer exist.
	LeaveToOthers bool `json:"leaveToOthers,omitempty"`
	// KeepDirectory, in a cleanup, says that a volume of this cluster that is not being cleaned up uses the directory.
	// It stays without an entry for that volume, too, whose own cleanup may have been called off after it had ended.
	KeepDirectory bool `json:"keepDirectory,omitempty"`
	// Joins, in a setup, says that another volume of this cluster uses the directory, or is being set up with it.
	// Without it, the data of all owners of this cluster counts as retained, and only claims of the same class get it.
	Joins bool `json:"joins,omitempty"`
	// RestoreFrom, in a restore, is the uid of the claim whose directory is wanted back.
	RestoreFrom string `json:"restore,omitempty"`

	Source // of a clone, and of a reader
	// Reads, in a setup, makes the volume a reader of the directory, which must be that of SourceVolume: its entry
	// belongs to the owner's namespace. With Adopt, the volume may be a reader: without an entry, it becomes no owner.
	Reads bool `json:"reads,omitempty"`
	// Abandon, in a clone, removes what was copied for a claim that no longer exists. It is done in a batch,
	// as a cleanup is.
	Abandon bool `json:"abandon,omitempty"`

	// Record, Try and GivenTo are the manager's own; mountjob does not read them. Try numbers the attempts from the second
	// on, and GivenTo is the uid of the claim to which an administrator has given the volume.
	Record  json.RawMessage `json:"record,omitempty"`
	Try     int             `json:"try,omitempty"`
	GivenTo string          `json:"givenTo,omitempty"`
}

// Attempt returns the number of the operation's attempt, from 1. It survives restarts of the manager, and the deletion
// of older Jobs.
func (o Operation) Attempt() int { return max(o.Try, 1) }

// AddsOwner says that an operation makes its volume an owner of a directory.
func (o Operation) AddsOwner() bool {
	return o.Kind == Setup || o.Kind == Restore || o.Copies()
}

// Copies says that an operation copies a directory, and so has a Job of its own.
func (o Operation) Copies() bool { return o.Kind == Clone && !o.Abandon }

// MaxID is the highest uid and gid that every NFS server and kernel accepts.
const MaxID = 1<<31 - 1

// UnixMode is the mode of a new directory, in Unix bits. allocatedGID is 0 without a group of its own.
func (d Directory) UnixMode(allocatedGID int) (uint32, error) {
	switch {
	case d.Mode == "" && allocatedGID != 0:
		return wellknown.AllocatedGIDPerms, nil
	case d.Mode == "":
		return wellknown.DefaultDirectoryPerms, nil
	}
	mode, err := strconv.ParseUint(d.Mode, 8, 32)
	if err != nil || mode > 0o7777 {
		return 0, fmt.Errorf("the mode %q is not octal, from 0 to 7777", Truncate(d.Mode, 64))
	}
	return uint32(mode), nil
}

// GIDRange is the range of allocated gids, with the defaults filled in.
func (d Directory) GIDRange() (lowest, highest int) {
	return cmp.Or(d.GIDMin, wellknown.DefaultGIDMin), cmp.Or(d.GIDMax, wellknown.DefaultGIDMax)
}

// ParseKeep reads how long the trash keeps a directory; "" is not at all.
func ParseKeep(keep string) (duration time.Duration, forever bool, err error) {
	switch keep {
	case "", wellknown.DefaultKeepDeleted:
		return 0, false, nil
	case wellknown.KeepDeletedForever:
		return 0, true, nil
	}
	duration, err = time.ParseDuration(keep)
	if err != nil || duration < 0 {
		return 0, false, fmt.Errorf("%q is not how long a directory can be kept: write a duration such as 72h, or %s", Truncate(keep, 64), wellknown.KeepDeletedForever)
	}
	return duration, false, nil
}

// Swept counts what a sweep has removed, and what is left in the trash.
type Swept struct {
	// Removed counts files and directories.
	Removed int64 `json:"removed"`
	// Volumes counts the volumes' directories whose time in the trash was over.
	Volumes int `json:"volumes"`
	// Kept counts the volumes' directories that stay in the trash.
	Kept int `json:"kept"`
	// Unknown counts those among them that stay forever, because their record cannot be read.
	Unknown int `json:"unknown,omitempty"`
	// Next is when the next directory may be removed, by the file server's clock; zero is never.
	Next time.Time `json:"next,omitzero"`
	// NextIn is Next in seconds from the start of the sweep, for readers with another clock.
	NextIn int64 `json:"nextInSeconds,omitempty"`
}

// TaskReport is the termination message of a sweep Job or a survey Job. All that was due is done, unless the Job
// was stopped or met an error.
type TaskReport struct {
	Swept // by a sweep
	// Counted counts the volumes that a survey has written lines about.
	Counted int `json:"counted,omitempty"`
	// Stopped says that its time was over, or its log full, and that the next Job goes on.
	Stopped bool `json:"stopped,omitempty"`
	// Error is why something that was due is left.
	Error string `json:"error,omitempty"`
}

// maxErrorBytes leaves room for the rest of the report, however much JSON has to quote.
const maxErrorBytes = wellknown.MaxTerminationMessageBytes / 8

// Encode writes the report as JSON of at most 4096 bytes.
func (r TaskReport) Encode() ([]byte, error) {
	r.Error = Truncate(r.Error, maxErrorBytes)
	return marshal(r)
}

// DecodeTaskReport reads what TaskReport.Encode wrote. With an error, the report is the zero value.
func DecodeTaskReport(message []byte) (TaskReport, error) {
	var report TaskReport
	if err := json.Unmarshal(message, &report); err != nil {
		return TaskReport{}, fmt.Errorf("reading the report of a task: %w", err)
	}
	return report, nil
}

// Succeeded reports whether all that was due is done.
func (r TaskReport) Succeeded() bool { return !r.Stopped && r.Error == "" }

// GotOn reports whether a sweep stopped in the middle of its work: the next one should continue at once. If it
// stopped before it did anything, it should not.
func (r TaskReport) GotOn() bool {
	return r.Stopped && (r.Removed > 0 || r.Volumes > 0)
}

// Usage is what a survey has counted in a volume's directory. It is one line of a survey Job's output.
type Usage struct {
	Path string `json:"path"`
	// Bytes are those that the file server has allocated, as du counts them. A file with several hard
	// links counts once, divided among them.
	Bytes int64 `json:"bytes"`
	// Files are files and directories, with the volume's own.
	Files int64 `json:"files"`
	// Incomplete is why the numbers are too low, or "".
	Incomplete string `json:"incomplete,omitempty"`
}

// Limits of what a survey may report: more than any file system holds, and exact in a float64.
const (
	maxUsage           = 1 << 53
	maxIncompleteBytes = 256
)

// Encode writes the usage as one line of JSON, without its end.
func (u Usage) Encode() ([]byte, error) {
	u.Incomplete = Truncate(strings.ToValidUTF8(u.Incomplete, "?"), maxIncompleteBytes)
	return marshal(u)
}

// DecodeUsage reads what Encode wrote. The error says that a line is nothing of a survey.
func DecodeUsage(line []byte) (Usage, error) {
	var u Usage
	if err := json.Unmarshal(line, &u); err != nil {
		return Usage{}, fmt.Errorf("reading a line of a survey: %w", err)
	}
	if err := CheckPath(u.Path); err != nil {
		return Usage{}, fmt.Errorf("reading a line of a survey: %w", err)
	}
	if u.Bytes < 0 || u.Bytes > maxUsage || u.Files < 0 || u.Files > maxUsage {
		return Usage{}, fmt.Errorf("reading a line of a survey: %s uses %d bytes in %d files, want 0 to %d of each", u.Path, u.Bytes, u.Files, int64(maxUsage))
	}
	u.Incomplete = Truncate(u.Incomplete, maxIncompleteBytes)
	return u, nil
}

// CloneProgress is how far a clone is. It is one line of a clone Job's output.
type CloneProgress struct {
	// Files are files, directories and all else that is complete in the copy; Found are those that were found
	// in the source so far.
	Files int64 `json:"files"`
	Found int64 `json:"found"`
	Bytes int64 `json:"bytes"`
}

// Encode writes the progress as one line of JSON, without its end.
func (p CloneProgress) Encode() ([]byte, error) { return marshal(p) }

// DecodeCloneProgress reads what Encode wrote. The error says that a line is nothing of a clone.
func DecodeCloneProgress(line []byte) (CloneProgress, error) {
	var p CloneProgress
	if err := json.Unmarshal(line, &p); err != nil {
		return CloneProgress{}, fmt.Errorf("reading a line of a clone: %w", err)
	}
	if p.Files < 0 || p.Found < p.Files || p.Bytes < 0 {
		return CloneProgress{}, fmt.Errorf("reading a line of a clone: %d of %d files and %d bytes are no progress", p.Files, p.Found, p.Bytes)
	}
	return p, nil
}
