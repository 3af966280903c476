package directories

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

// entry is a file of the ledger: one volume's ownership of one path.
type entry struct {
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
	Found bool      `json:"found,omitempty"`
	When  time.Time `json:"when"` // distinguishes incarnations of the volume
	// RestoredFrom is the slot of the trash where the directory was.
	RestoredFrom string `json:"restoredFrom,omitempty"`
	// TakenFrom is the cluster from which an administrator has taken the volume over.
	TakenFrom string `json:"takenFrom,omitempty"`

	volume  string                     // from the file's name
	state   entryState                 // likewise
	bucket  string                     // likewise; of the trash, for the directory of an owner that leaves
	unknown map[string]json.RawMessage // fields of a later version, which are written again
}

// entryState ends the name of an entry's file; "" is an owner. In this order the entries of a path are
// listed.
type entryState string

const (
	stateLeaving  entryState = wellknown.LeavingSuffix  // an owner whose cleanup has begun
	stateRetained entryState = wellknown.RetainedSuffix // no owner any more: its volume is gone, and its data stays
)

func newEntry(owner operations.Owner, when time.Time) *entry {
	return &entry{
		Cluster: owner.Cluster, Namespace: owner.Namespace, NamespaceUID: owner.NamespaceUID, Class: owner.Class,
		Claim: owner.Claim, ClaimUID: owner.ClaimUID,
		When: when.UTC().Round(0), volume: owner.Volume,
	}
}

// owner is the entry's owner, without the fields that entries of earlier versions lack.
func (e *entry) owner() operations.Owner {
	return operations.Owner{Volume: e.volume, Cluster: e.Cluster, Namespace: e.Namespace, Claim: e.Claim, ClaimUID: e.ClaimUID}
}

// isOf reports whether the entry was made for this claim. The volume's name alone proves nothing:
// clusters give the same names.
func (e *entry) isOf(owner operations.Owner) bool {
	return e.volume == owner.Volume && e.Cluster == owner.Cluster && e.ClaimUID == owner.ClaimUID
}

// isTakenBy reports whether the operation takes the entry over.
func (e *entry) isTakenBy(op operations.Operation) bool {
	return op.TakeOver != "" && e.Cluster == op.TakeOver && e.volume == op.Volume && e.ClaimUID == op.ClaimUID
}

func (e *entry) String() string {
	return fmt.Sprintf("volume %s (claim %s/%s of cluster %s)",
		operations.Truncate(e.volume, 255), operations.Truncate(e.Namespace, 63), operations.Truncate(e.Claim, 255), operations.Truncate(e.Cluster, 64))
}

// relation says, in a message about a path, what the entry means for it.
func (e *entry) relation() string {
	if e.state == stateRetained {
		return "has the retained data of " + e.String()
	}
	return "belongs to " + e.String()
}

// fileName is the entry's in its path's directory of the ledger.
func (e *entry) fileName() string {
	name := wellknown.OwnerPrefix + e.volume + string(e.state)
	if e.bucket != bucketAtOnce {
		name += incarnationMark + e.bucket
	}
	return name
}

func parseEntry(fileName string, data []byte) (*entry, error) {
	e := &entry{}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, err
	}
	e.volume = strings.TrimPrefix(fileName, wellknown.OwnerPrefix)
	if name, bucket, ok := strings.Cut(e.volume, incarnationMark); ok && isBucket(bucket) && bucket != bucketAtOnce {
		e.volume, e.bucket = name, bucket
	}
	for _, state := range []entryState{stateRetained, stateLeaving} {
		if volume, ok := strings.CutSuffix(e.volume, string(state)); ok {
			e.volume, e.state = volume, state
			break
		}
	}
	return e, nil
}

type plainEntry entry

// UnmarshalJSON keeps what this version does not know.
func (e *entry) UnmarshalJSON(data []byte) error {
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
	for _, name := range []string{"cluster", "namespace", "namespaceUID", "class", "claim", "claimUID", "gid", "made", "found", "when", "restoredFrom", "takenFrom"} {
		delete(fields, name)
	}
	known.unknown = fields
	*e = entry(known)
	return nil
}

// MarshalJSON writes the unknown fields beside the known ones.
func (e *entry) MarshalJSON() ([]byte, error) {
	known, err := encode((*plainEntry)(e))
	if err != nil || len(e.unknown) == 0 {
		return known, err
	}
	fields := maps.Clone(e.unknown)
	if err := json.Unmarshal(known, &fields); err != nil {
		return nil, err
	}
	return encode(fields)
}

// isOfEarlierNamespace reports that the namespace of the entry was deleted, and another one made with
// its name. Clusters give the same names, with uids of their own.
func (e *entry) isOfEarlierNamespace(owner operations.Owner) bool {
	return e.Cluster == owner.Cluster && e.Namespace == owner.Namespace &&
		e.NamespaceUID != "" && owner.NamespaceUID != "" && e.NamespaceUID != owner.NamespaceUID
}
