package rebuild

import (
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
)

// State is the outcome for one directory.
type State string

// The states.
const (
	Planned State = "planned" // objects are created, or an owner is recorded
	Exists  State = "exists"  // nothing is to be done
	Left    State = "left"    // it is not wanted; the note says why
	Refused State = "refused" // it was asked for, but cannot be had
	Whose   State = "whose?"  // nothing vouches for its claim: an administrator has to name it
	Done    State = "done"
	Failed  State = "failed"
)

// Item is a directory that is to be a volume.
type Item struct {
	FileSystem string `json:"fileSystem"`
	Path       string `json:"path"`
	Namespace  string `json:"namespace,omitempty"`
	Claim      string `json:"claim,omitempty"`
	Volume     string `json:"volume,omitempty"`
	State      State  `json:"state"`
	Note       string `json:"note,omitempty"`

	// Adoption makes the volume an owner; nil if it is one.
	Adoption  *requests.Volume              `json:"-"`
	NewVolume *corev1.PersistentVolume      `json:"-"` // nil if there is one
	NewClaim  *corev1.PersistentVolumeClaim `json:"-"` // nil if there is one
}

// end sets the last state of an item, and drops what would have been done.
func (i *Item) end(state State, note string) {
	i.State, i.Note = state, note
	i.Adoption, i.NewVolume, i.NewClaim = nil, nil, nil
}

// Count returns the number of items in one of some states.
func Count(items []Item, states ...State) int {
	count := 0
	for _, item := range items {
		for _, state := range states {
			if item.State == state {
				count++
			}
		}
	}
	return count
}

// Rows returns a table of items.
func Rows(items []Item) [][]string {
	rows := [][]string{{"FILE SYSTEM", "PATH", "CLAIM", "VOLUME", "STATE", "NOTE"}}
	for _, item := range items {
		claim := item.Namespace + "/" + item.Claim
		if claim == "/" {
			claim = "-"
		}
		rows = append(rows, []string{item.FileSystem, item.Path, claim, item.Volume, string(item.State), item.Note})
	}
	return rows
}
