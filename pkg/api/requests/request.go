// Package requests is the contract between the plugin of kubectl and "mountjob ledger": what an administrator
// asks about the ledger and the trash of one file system, and the lines of the answer in the pod's log.
package requests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// Action is what a request is for.
type Action string

// The actions.
const (
	ListTrash  Action = "list-trash"
	EmptyTrash Action = "empty-trash" // removes what Selection has

	ListOwners     Action = "list-owners"     // refused if Lost lives
	ReleaseCluster Action = "release-cluster" // of Release

	ListDirectories Action = "list-directories" // of Directories, and all owners
	AdoptVolumes    Action = "adopt-volumes"    // of Adoption
)

// MaxRequestBytes is how long the JSON of a request may be: it is an argument of a program.
const MaxRequestBytes = 64 << 10

// Request is what an administrator wants to know or to change on one file system.
type Request struct {
	Do Action `json:"do"`
	// Selection is for EmptyTrash.
	Selection *Selection `json:"selection,omitempty"`
	// Release is for ReleaseCluster.
	Release *Release `json:"release,omitempty"`
	// Lost, for ListOwners, is a cluster that must be gone; nil is none.
	Lost *Lost `json:"lost,omitempty"`
	// Directories are for ListDirectories.
	Directories *Directories `json:"directories,omitempty"`
	// Adoption is for AdoptVolumes.
	Adoption *Adoption `json:"adoption,omitempty"`
}

// Release says whose owners are released.
type Release struct {
	Cluster string `json:"cluster"`
	DryRun  bool   `json:"dryRun,omitempty"`
	// Force releases them although the cluster has left a mark within FreshMark.
	Force bool `json:"force,omitempty"`
}

// FreshMark is the age of a cluster's newest mark on a file system, an owner or a deletion by the server's
// clock, up to which the cluster counts as living.
const FreshMark = 24 * time.Hour

// Selection is a part of the trash. A directory of which it is not known whose it was is in none.
type Selection struct {
	Cluster   string   `json:"cluster"`
	Namespace string   `json:"namespace,omitempty"` // "" is all
	Claims    []string `json:"claims,omitempty"`    // uids; none is all
	// Until is when the last directory was deleted that the administrator has seen in a list. Later ones stay.
	Until time.Time `json:"until"`
}

// Has reports whether a directory is selected.
func (s Selection) Has(t Trashed) bool {
	return !t.Unknown && t.Cluster == s.Cluster && !t.Deleted.After(s.Until) &&
		(s.Namespace == "" || t.Namespace == s.Namespace) &&
		(len(s.Claims) == 0 || slices.Contains(s.Claims, t.ClaimUID))
}

// Encode writes a request as JSON for an argument of a container.
func (r Request) Encode() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(r)
	data = bytes.ReplaceAll(data, []byte("$"), []byte(`\u0024`)) // Kubernetes would expand $(…) in an argument
	if len(data) > MaxRequestBytes {
		return nil, fmt.Errorf("the request has %d bytes, more than %d: ask for less at once", len(data), MaxRequestBytes)
	}
	return data, err
}

// DecodeRequest reads what Encode wrote. It refuses fields that this version does not have: to ignore a
// limit would be to remove more than was requested.
func DecodeRequest(data []byte) (Request, error) {
	var r Request
	if err := operations.UnmarshalStrictly(data, &r); err != nil {
		return Request{}, fmt.Errorf("reading the request: %w: use a plugin of the version of the image of mount Jobs", err)
	}
	return r, r.check()
}

func (r Request) check() error {
	switch {
	case !slices.Contains([]Action{ListTrash, EmptyTrash, ListOwners, ReleaseCluster, ListDirectories, AdoptVolumes}, r.Do):
		return fmt.Errorf("there is no request %q: use a plugin of the version of the image of mount Jobs", operations.Truncate(string(r.Do), 64))
	case (r.Selection != nil) != (r.Do == EmptyTrash):
		return fmt.Errorf("request %s: a selection is for %s, which needs one", r.Do, EmptyTrash)
	case (r.Release != nil) != (r.Do == ReleaseCluster):
		return fmt.Errorf("request %s: a release is for %s, which needs one", r.Do, ReleaseCluster)
	case r.Lost != nil && r.Do != ListOwners:
		return fmt.Errorf("request %s: a lost cluster is for %s", r.Do, ListOwners)
	case (r.Directories != nil) != (r.Do == ListDirectories):
		return fmt.Errorf("request %s: directories are for %s, which needs some", r.Do, ListDirectories)
	case (r.Adoption != nil) != (r.Do == AdoptVolumes):
		return fmt.Errorf("request %s: an adoption is for %s, which needs one", r.Do, AdoptVolumes)
	}
	return r.checkParts()
}

func (r Request) checkParts() error {
	switch {
	case r.Selection != nil:
		return r.Selection.check()
	case r.Lost != nil:
		return checkUID(r.Do, r.Lost.Cluster)
	case r.Directories != nil:
		return r.Directories.check()
	case r.Adoption != nil:
		return r.Adoption.check()
	case r.Release != nil:
		return checkUID(r.Do, r.Release.Cluster)
	}
	return nil
}

func checkUID(do Action, uid string) error {
	if err := operations.CheckIdentity(uid); err != nil {
		return fmt.Errorf("request %s: the uid %q %w", do, operations.Truncate(uid, 64), err)
	}
	return nil
}

func (s Selection) check() error {
	for _, id := range append([]string{s.Cluster}, s.Claims...) {
		if err := checkUID(EmptyTrash, id); err != nil {
			return err
		}
	}
	if s.Until.IsZero() {
		return fmt.Errorf("request %s: it does not say which deletions were seen in a list", EmptyTrash)
	}
	return nil
}

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
