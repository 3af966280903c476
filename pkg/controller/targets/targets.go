// Package targets is what the control loops know of the file systems at one
// moment: discovery writes it, the others read it, as they read the caches of
// the cluster's objects.
package targets

import (
	"maps"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Snapshot is never changed once it is published.
type Snapshot struct {
	// Known says that there is a table, and that the first look at the file systems is over,
	// however it ended. Before that, nothing may be chosen.
	Known bool
	// Trouble is what has to be mended before anything can be known, or "".
	Trouble string
	// Listed says that the API has answered since the start, so that tags, zones and states are
	// those of now. Without it, only what the table holds is known.
	Listed bool
	// Unanswered says that the API was asked, and has not answered since the start.
	Unanswered bool
	// FileSystems are those of the table and those that cannot serve, by id; HoldsPath is not set.
	FileSystems map[string]volumes.Candidate
	// Tunnels are what is known of the access points and of the tunnels with an identity that
	// somebody asked for.
	Tunnels map[ports.Key]Tunnel
	// Gone are file systems that provably no longer exist.
	Gone map[string]bool
}

// Tunnel is what is known of one that was asked for.
type Tunnel struct {
	Port int  // 0 while it has none
	IAM  bool // it shows who it is
	// Problem says why nobody can use it now, or "". If it is hopeless, waiting does not help.
	Problem  string
	Hopeless bool
}

// Candidates are the file systems in order of their ids.
func (s Snapshot) Candidates() []volumes.Candidate {
	candidates := make([]volumes.Candidate, 0, len(s.FileSystems))
	for _, id := range slices.Sorted(maps.Keys(s.FileSystems)) {
		candidates = append(candidates, s.FileSystems[id])
	}
	return candidates
}

// Port is the port of a file system's tunnel, 0 while it has none.
func (s Snapshot) Port(fileSystemID string) int { return s.FileSystems[fileSystemID].Port }
