// Package targets is the snapshot of the file systems that discovery publishes and the other control
// loops read, as they read the caches of the cluster's objects.
package targets

import (
	"maps"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Snapshot is never changed once it is published.
type Snapshot struct {
	// Known says that there is a table, and that the first poll of the file systems has ended, with
	// an answer or not. Before that, nothing may be chosen.
	Known   bool
	Problem string // the object that must be corrected before anything can be known, and why; or ""
	// Listed says that the API has answered since the start, so tags, zones and states are current.
	// Otherwise only what the table holds is known.
	Listed bool
	// Unanswered says that the API was polled and has not answered since the start.
	Unanswered bool
	// FileSystems are those of the table and those that cannot be used, by id; HoldsPath is not set.
	FileSystems map[string]volumes.Candidate
	Tunnels     map[ports.Key]Tunnel // those of the demanded access points and those with a demanded IAM identity
	// Excluded are the file systems that the API lists and the manager's settings leave out, with why.
	Excluded map[string]string
	// Others are the namespaces of other installations in the cluster, by the file systems that are
	// theirs: nothing is written for these.
	Others map[string]string
	Gone   map[string]bool // file systems that provably no longer exist
	// Servers are NFS servers of one's own, whose ledger has the sizes of volumes: they may enforce them.
	Servers map[string]bool
}

// Tunnel is one that SharedVolumes demand.
type Tunnel struct {
	Port     int    // 0 while it has none
	IAM      bool   // it presents an IAM identity
	Problem  string // why it cannot be used now, or ""
	Terminal bool   // only an edit ends the problem
}

// Candidates returns the file systems in order of their ids.
func (s Snapshot) Candidates() []volumes.Candidate {
	candidates := make([]volumes.Candidate, 0, len(s.FileSystems))
	for _, id := range slices.Sorted(maps.Keys(s.FileSystems)) {
		candidates = append(candidates, s.FileSystems[id])
	}
	return candidates
}

// Port returns the port of a file system's tunnel, 0 while it has none.
func (s Snapshot) Port(fileSystemID string) int { return s.FileSystems[fileSystemID].Port }
