package requests

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// Lost is a cluster that is gone, and whose owners are taken over.
type Lost struct {
	Cluster string `json:"cluster"`
	// Force takes it for gone although it has left a mark within FreshMark.
	Force bool `json:"force,omitempty"`
}

// Directories say which directories of the file system are listed.
type Directories struct {
	// Patterns are paths, in which a component may be a pattern of path.Match. Only directories match.
	Patterns []string `json:"patterns,omitempty"`
	// Paths are answered in any case, with a Problem if they are no directories.
	Paths []string `json:"paths,omitempty"`
}

// MaxDirectories is how many directories an answer has.
const MaxDirectories = 10000

// Directory is one that exists, or was requested by its path.
type Directory struct {
	Path string `json:"path"`
	// Problem says why it can be no volume, or "".
	Problem string `json:"problem,omitempty"`
	UID     int    `json:"uid,omitempty"`
	GID     int    `json:"gid,omitempty"`
	Setgid  bool   `json:"setgid,omitempty"` // what is created in it gets its group
}

// Adoption makes volumes the owners of directories that exist.
type Adoption struct {
	Cluster string `json:"cluster"` // that gets them
	// Lost is the cluster from which they are taken over; nil if the directories have no owners.
	Lost    *Lost    `json:"lost,omitempty"`
	Volumes []Volume `json:"volumes"`
}

// Volume becomes the owner of a directory.
type Volume struct {
	Name         string `json:"name"`
	Path         string `json:"path"`
	Namespace    string `json:"namespace"`
	NamespaceUID string `json:"namespaceUID,omitempty"`
	Class        string `json:"class,omitempty"`
	Claim        string `json:"claim"`
	ClaimUID     string `json:"claimUID"` // as the ledger and the volume have it
	// Made gives the owner the right to remove the directory with its last owner.
	Made bool `json:"made,omitempty"`
	// GID is the group of its own that the directory has; 0 is none.
	GID int `json:"gid,omitempty"`
}

// Adopted is what became of a volume.
type Adopted struct {
	Volume  string `json:"volume"`
	Path    string `json:"path"`
	Problem string `json:"problem,omitempty"` // "" if it is the owner
}

func (d Directories) check() error {
	if len(d.Patterns)+len(d.Paths) == 0 {
		return fmt.Errorf("request %s: it does not say which", ListDirectories)
	}
	for _, pattern := range d.Patterns {
		if err := CheckPattern(pattern); err != nil {
			return fmt.Errorf("request %s: %w", ListDirectories, err)
		}
	}
	return nil
}

// CheckPattern says why Patterns cannot have a pattern.
func CheckPattern(pattern string) error {
	shown := operations.Truncate(pattern, 256)
	if !strings.HasPrefix(pattern, "/") || pattern == "/" {
		return fmt.Errorf("the pattern %q does not begin with / and a name", shown)
	}
	for component := range strings.SplitSeq(pattern[1:], "/") {
		if component == "" || component == "." || component == ".." {
			return fmt.Errorf("the pattern %q has the component %q", shown, component)
		}
		if _, err := path.Match(component, ""); err != nil {
			return fmt.Errorf("the pattern %q: %w", shown, err)
		}
	}
	return nil
}

func (a Adoption) check() error {
	if err := checkUID(AdoptVolumes, a.Cluster); err != nil {
		return err
	}
	if a.Lost != nil {
		if err := checkUID(AdoptVolumes, a.Lost.Cluster); err != nil {
			return err
		}
	}
	if len(a.Volumes) == 0 {
		return errors.New("request " + string(AdoptVolumes) + ": it has no volumes")
	}
	return nil
}

// Operation is the one that a mount Job would carry out. What is wrong with it is found then.
func (a Adoption) Operation(v Volume) operations.Operation {
	op := operations.Operation{
		Kind: operations.Setup, Path: v.Path, Adopt: true, Made: v.Made,
		Owner: operations.Owner{
			Volume: v.Name, Cluster: a.Cluster, Namespace: v.Namespace, NamespaceUID: v.NamespaceUID,
			Class: v.Class, Claim: v.Claim, ClaimUID: v.ClaimUID,
		},
	}
	if a.Lost != nil {
		op.TakeOver = a.Lost.Cluster
	}
	if v.GID > 0 {
		op.Directory = operations.Directory{AllocateGID: true, GIDMin: v.GID, GIDMax: v.GID}
	}
	return op
}
