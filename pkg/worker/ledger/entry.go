// Package ledger records which volumes own which path, and which groups are allocated.
//
// # On the file system
//
//	/.efs-stunnel/file-system-id        which file system this is
//	/.efs-stunnel/lock                  held while a batch changes anything
//	/.efs-stunnel/owners/<path>/@<volume>          an owner of <path> (JSON)
//	/.efs-stunnel/owners/<path>/@<volume>.leaving  one whose cleanup has begun; with ~<time> behind it, its
//	                                    directory goes there in the trash
//	/.efs-stunnel/owners/<path>/@<volume>.retained one whose volume is gone, and whose data stays
//	/.efs-stunnel/gids/<gid>            for whom this group was allocated (JSON)
//	/.efs-stunnel/trash/<volume>        a deleted directory that may be removed at once; when a claim begins
//	                                    again, the volume has another incarnation, which is <volume>~2, ~3, …
//	/.efs-stunnel/trash/<time>/<volume> one that may be removed then, by the server's clock; also NEVER
//	/.efs-stunnel/trash/…/@<volume>     its record: whose it was, and how long it is kept (JSON)
//	/.efs-stunnel/trash/@@sweeping/     the staging directory: what no restore can find any more
//	/.efs-stunnel/clones/<volume>/      a copy that is not complete yet, see clone.go
//	/.efs-stunnel/tmp/                  half-made files and directories, on their way into place; also
//	                                    tmp-2, tmp-3, … when several are made side by side; of one batch
//
// Everything appears in its place by one rename, complete; but for the file of a gid, whose name is what
// counts. An owner's entry is there before the directory, and goes after it.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Entry is a file of the ledger: one volume's ownership of one path.
type Entry struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	// NamespaceUID distinguishes a namespace from an earlier one of the same name. Entries of earlier
	// versions have neither this nor Class.
	NamespaceUID string `json:"namespaceUID,omitempty"`
	Class        string `json:"class,omitempty"`
	Claim        string `json:"claim"`
	ClaimUID     string `json:"claimUID"`
	GID          int    `json:"gid,omitempty"`  // the directory's, when it has one of its own
	Made         bool   `json:"made,omitempty"` // the directory was made for a volume, so a cleanup may remove it
	// Found says that the directory was at the path when the volume became an owner of it. Entries of earlier
	// versions lack it; those without Made were found, too.
	Found bool `json:"found,omitempty"`
	// Reads says that the volume only reads the directory: Namespace and Class are those of the owner, and Claim is
	// the reader's.
	Reads bool `json:"reads,omitempty"`
	// Size is what the claim requests in bytes, 0 if unknown. nfsserver enforces the largest of a directory's owners.
	Size int64     `json:"size,omitempty"`
	When time.Time `json:"when"` // distinguishes incarnations of the volume
	// RestoredFrom is the slot of the trash where the directory was.
	RestoredFrom string `json:"restoredFrom,omitempty"`
	// TakenFrom is the cluster from which an administrator has taken the volume over.
	TakenFrom string `json:"takenFrom,omitempty"`

	Volume  string                     `json:"-"` // from the file's name
	State   EntryState                 `json:"-"` // likewise
	Bucket  string                     `json:"-"` // likewise; of the trash, for the directory of an owner that leaves
	Unknown map[string]json.RawMessage `json:"-"` // fields of a later version, which are written again
}

// EntryState ends the name of an entry's file; "" is an owner. It orders the entries of a path.
type EntryState string

// The states of entries that are no owners.
const (
	StateLeaving  EntryState = wellknown.LeavingSuffix  // an owner whose cleanup has begun
	StateRetained EntryState = wellknown.RetainedSuffix // no owner any more: its volume is gone, and its data stays
)

// NewEntry makes the entry of an owner.
func NewEntry(owner operations.Owner, when time.Time) *Entry {
	return &Entry{
		Cluster: owner.Cluster, Namespace: owner.Namespace, NamespaceUID: owner.NamespaceUID, Class: owner.Class,
		Claim: owner.Claim, ClaimUID: owner.ClaimUID,
		When: when.UTC().Round(0), Volume: owner.Volume,
	}
}

// Owner is the entry's owner, without the fields that entries of earlier versions lack.
func (e *Entry) Owner() operations.Owner {
	return operations.Owner{Volume: e.Volume, Cluster: e.Cluster, Namespace: e.Namespace, Claim: e.Claim, ClaimUID: e.ClaimUID}
}

// IsOf reports whether the entry was made for this claim: clusters give the same names to volumes.
func (e *Entry) IsOf(owner operations.Owner) bool {
	return e.Volume == owner.Volume && e.Cluster == owner.Cluster && e.ClaimUID == owner.ClaimUID
}

// IsTakenBy reports whether the operation takes the entry over.
func (e *Entry) IsTakenBy(op operations.Operation) bool {
	return op.TakeOver != "" && e.Cluster == op.TakeOver && e.Volume == op.Volume && e.ClaimUID == op.ClaimUID
}

// String names the volume and its claim.
func (e *Entry) String() string {
	if e.Reads {
		return fmt.Sprintf("volume %s (of a claim of another namespace than %s, which only reads)", operations.Truncate(e.Volume, 255), operations.Truncate(e.Namespace, 63))
	}
	return fmt.Sprintf("volume %s (claim %s/%s of cluster %s)",
		operations.Truncate(e.Volume, 255), operations.Truncate(e.Namespace, 63), operations.Truncate(e.Claim, 255), operations.Truncate(e.Cluster, 64))
}

// Relation says, in a message about a path, what the entry means for it.
func (e *Entry) Relation() string {
	if e.State == StateRetained {
		return "has the retained data of " + e.String()
	}
	return "belongs to " + e.String()
}

// FileName is the entry's in its path's directory of the ledger.
func (e *Entry) FileName() string {
	name := wellknown.OwnerPrefix + e.Volume + string(e.State)
	if e.Bucket != BucketAtOnce {
		name += IncarnationMark + e.Bucket
	}
	return name
}

// ParseEntry reads the file of an entry.
func ParseEntry(fileName string, data []byte) (*Entry, error) {
	e := &Entry{}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, err
	}
	e.Volume = strings.TrimPrefix(fileName, wellknown.OwnerPrefix)
	if name, bucket, ok := strings.Cut(e.Volume, IncarnationMark); ok && IsBucket(bucket) && bucket != BucketAtOnce {
		e.Volume, e.Bucket = name, bucket
	}
	for _, state := range []EntryState{StateRetained, StateLeaving} {
		if volume, ok := strings.CutSuffix(e.Volume, string(state)); ok {
			e.Volume, e.State = volume, state
			break
		}
	}
	return e, nil
}

type plainEntry Entry

// UnmarshalJSON keeps what this version does not know.
func (e *Entry) UnmarshalJSON(data []byte) error {
	var known plainEntry
	if err := json.Unmarshal(data, &known); err != nil {
		return err
	}
	if known.Cluster == "" || known.GID < 0 || known.GID > operations.MaxID {
		return errors.New("it does not say who the owner is")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	for _, name := range []string{"cluster", "namespace", "namespaceUID", "class", "claim", "claimUID", "gid", "made", "found", "reads", "size", "when", "restoredFrom", "takenFrom"} {
		delete(fields, name)
	}
	known.Unknown = fields
	*e = Entry(known)
	return nil
}

// MarshalJSON writes the unknown fields beside the known ones.
func (e *Entry) MarshalJSON() ([]byte, error) {
	known, err := operations.MarshalLine((*plainEntry)(e))
	if err != nil || len(e.Unknown) == 0 {
		return known, err
	}
	fields := maps.Clone(e.Unknown)
	if err := json.Unmarshal(known, &fields); err != nil {
		return nil, err
	}
	return operations.MarshalLine(fields)
}

// IsOfEarlierNamespace reports that another namespace of the cluster has the name of the entry's now.
func (e *Entry) IsOfEarlierNamespace(owner operations.Owner) bool {
	return e.Cluster == owner.Cluster && e.Namespace == owner.Namespace &&
		e.NamespaceUID != "" && owner.NamespaceUID != "" && e.NamespaceUID != owner.NamespaceUID
}

// A bucket is a directory in the trash for what is due at the time that is its name: a sweep reads nothing that is not
// due. What is due at once is in the trash itself, and so is what a full server had no space to make a bucket for. No
// volume has the name of a bucket. The record of a directory decides when it is removed.
const (
	BucketAtOnce = ""
	bucketNever  = "NEVER"
	bucketLayout = "20060102T150405Z"
)

// Times are rounded up, so that a bucket whose time is over holds nothing that is not due. Steps
// that grow with the time to keep leave a hundred buckets for each, and a delay of a hundredth.
const (
	smallestStep = time.Second
	largestStep  = 24 * time.Hour
	stepsInKeep  = 100
)

// BucketFor returns the bucket of what is due at a time.
func BucketFor(due time.Time, keep time.Duration, forever bool) string {
	switch {
	case forever:
		return bucketNever
	case keep == 0:
		return BucketAtOnce
	}
	step := min(max((keep/stepsInKeep).Truncate(time.Second), smallestStep), largestStep)
	return due.Add(step - 1).Truncate(step).UTC().Format(bucketLayout)
}

// BucketTime returns when a bucket is due: zero is at once, not ok never.
func BucketTime(bucket string) (at time.Time, ok bool) {
	if bucket == BucketAtOnce {
		return time.Time{}, true
	}
	at, err := time.Parse(bucketLayout, bucket)
	return at, err == nil
}

// IsBucket reports whether a name is that of a bucket.
func IsBucket(name string) bool {
	_, hasTime := BucketTime(name)
	return hasTime || name == bucketNever
}

// IncarnationMark is in no volume's name. The incarnations of a volume, from 1 on, lie beside each other in a bucket.
const IncarnationMark = "~"
