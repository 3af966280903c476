package operations

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Kind says what an operation does.
type Kind string

// The kinds. In a batch a path is left before it is taken; see order.
const (
	// Release ends an owner whose volume and claim are gone. Its data is retained: no cleanup
	// removes it from now on.
	Release Kind = "release"
	// Cleanup drops the owner; when it was the last one, the directory goes to the trash.
	Cleanup Kind = "cleanup"
	// Restore makes a volume of a directory in the trash.
	Restore Kind = "restore"
	// Setup makes a volume of a new directory, or of one that is there.
	Setup Kind = "setup"
)

// Owner is a volume and the claim that it is for.
type Owner struct {
	// Volume is the PersistentVolume's name, and the owner's in the ledger.
	Volume string `json:"volume,omitempty"`
	// Cluster is the uid of the cluster's namespace kube-system.
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"ns,omitempty"`
	Claim     string `json:"claim,omitempty"`
	ClaimUID  string `json:"uid,omitempty"`
	// NamespaceUID and Class are for the entry that a setup or restore writes; "" where nobody
	// knows them. They are no part of who the owner is: earlier versions did not write them down.
	NamespaceUID string `json:"nsUID,omitempty"`
	Class        string `json:"class,omitempty"`
}

// Directory says how a new directory is made. One that exists keeps its mode and owner.
type Directory struct {
	// Mode is octal, as in directory_perms. Empty is the default, which depends on AllocateGID.
	Mode string `json:"mode,omitempty"`
	UID  int    `json:"user,omitempty"`
	GID  int    `json:"group,omitempty"`
	// AllocateGID gives the directory a group that no other one of the file system has, from
	// GIDMin to GIDMax.
	AllocateGID bool `json:"allocateGID,omitempty"`
	GIDMin      int  `json:"gidMin,omitempty"` // 0 is the default
	GIDMax      int  `json:"gidMax,omitempty"` // 0 is the default
}

// Rules say which directories a setup may take although they are not new.
type Rules struct {
	ShareAcrossNamespaces bool `json:"shareAcrossNamespaces,omitempty"`
	ShareAcrossClusters   bool `json:"shareAcrossClusters,omitempty"`
	// RefuseExisting refuses a directory that has content and no owner.
	RefuseExisting bool `json:"refuseExisting,omitempty"`
}

// Operation is one wish for one volume.
type Operation struct {
	Kind Kind `json:"do"`
	Owner
	// Path is the volume's directory, counted from the file system's root.
	Path string `json:"path,omitempty"`

	Directory // of a setup
	Rules     // of a setup; a restore needs ShareAcrossNamespaces only

	// Adopt, in a setup, records the owner of a directory that must exist, and changes nothing.
	Adopt bool `json:"adopt,omitempty"`
	// Made, with Adopt, says that the original system made the directory, so that a cleanup may
	// take it away.
	Made bool `json:"made,omitempty"`
	// Keep, in a cleanup, is how long the trash keeps the directory: a duration, or "forever".
	Keep string `json:"keep,omitempty"`
	// LeaveToOthers, in a cleanup, drops the owner even if other volumes of this cluster stay.
	// The asker sets it when it knows that such a volume exists; without it the cleanup is
	// blocked, so that the asker can look for owners that are only remembered.
	LeaveToOthers bool `json:"leaveToOthers,omitempty"`
	// KeepDirectory, in a cleanup, says that a volume of this cluster that is not being cleaned up
	// has the directory. It stays then even if the ledger does not know that volume: its own
	// cleanup may have been called off when it had ended already.
	KeepDirectory bool `json:"keepDirectory,omitempty"`
	// Joins, in a setup, says that another volume of this cluster that is in use has the directory,
	// or is being set up with it. Without it, owners of this cluster are only remembered, and their
	// data is for claims of their class.
	Joins bool `json:"joins,omitempty"`
	// RestoreFrom, in a restore, is the uid of the claim whose directory is wanted back.
	RestoreFrom string `json:"restore,omitempty"`

	// Record belongs to the asker; nothing here reads it.
	Record json.RawMessage `json:"record,omitempty"`
}

// Check refuses what no file system needs to be asked about. Its path is not looked at; that is
// CheckPath's.
func (o Operation) Check() error {
	if err := checkVolumeName(o.Volume); err != nil {
		return err
	}
	for what, value := range map[string]string{
		"cluster": o.Cluster, "namespace": o.Namespace, "claim": o.Claim, "claim uid": o.ClaimUID,
	} {
		if err := CheckIdentity(value); err != nil {
			return fmt.Errorf("the %s %q %v", what, Truncate(value, 64), err)
		}
	}
	for what, value := range map[string]string{"namespace uid": o.NamespaceUID, "class": o.Class} {
		if err := CheckIdentity(value); value != "" && err != nil {
			return fmt.Errorf("the %s %q %v", what, Truncate(value, 64), err)
		}
	}
	switch o.Kind {
	case Setup:
		return o.Directory.check()
	case Restore:
		if o.RestoreFrom == "" || checkVolumeName(wellknown.VolumePrefix+o.RestoreFrom) != nil {
			return fmt.Errorf("%q is not the uid of a claim to restore", Truncate(o.RestoreFrom, 64))
		}
		return nil
	case Cleanup:
		_, _, err := ParseKeep(o.Keep)
		return err
	case Release:
		return nil
	default:
		return fmt.Errorf("%q is nothing that this version of mountjob can do: use the image that belongs to the manager", Truncate(string(o.Kind), 64))
	}
}

// checkVolumeName wants what Kubernetes allows, less the names that the ledger could take for
// something else.
func checkVolumeName(name string) error {
	const longest = wellknown.MaxComponentBytes - len(wellknown.OwnerPrefix) - len(wellknown.RetainedSuffix)
	switch {
	case name == "":
		return fmt.Errorf("the volume has no name")
	case len(name) > longest:
		return fmt.Errorf("the volume name %q… has more than %d bytes", Truncate(name, 64), longest)
	case strings.HasSuffix(name, wellknown.LeavingSuffix):
		return fmt.Errorf("the volume name %q ends in %s, which marks owners that leave", Truncate(name, 64), wellknown.LeavingSuffix)
	case strings.HasSuffix(name, wellknown.RetainedSuffix):
		return fmt.Errorf("the volume name %q ends in %s, which marks retained data", Truncate(name, 64), wellknown.RetainedSuffix)
	}
	for i, c := range []byte(name) {
		if alphanumeric := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'; !alphanumeric && (i == 0 || c != '-' && c != '.') {
			return fmt.Errorf("the volume name %q is not one of Kubernetes'", Truncate(name, 64))
		}
	}
	return nil
}

// CheckIdentity bounds what goes into ledger and reports.
func CheckIdentity(value string) error {
	switch {
	case value == "":
		return fmt.Errorf("is empty")
	case len(value) > wellknown.MaxComponentBytes:
		return fmt.Errorf("has more than %d bytes", wellknown.MaxComponentBytes)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("has characters that no name has")
	}
	return nil
}

func (d Directory) check() error {
	if _, err := d.UnixMode(0); err != nil {
		return err
	}
	lowest, highest := d.GIDRange()
	switch {
	case d.UID < 0 || d.UID > MaxID || d.GID < 0 || d.GID > MaxID:
		return fmt.Errorf("uid %d and gid %d must be from 0 to %d", d.UID, d.GID, MaxID)
	case d.AllocateGID && (lowest < 1 || highest > MaxID || lowest > highest):
		return fmt.Errorf("no gid can be allocated from %d to %d: both must be from 1 to %d, the first not above the second", lowest, highest, MaxID)
	}
	return nil
}

// maxID is where ids end that every NFS server and kernel agree on.
const MaxID = 1<<31 - 1

// UnixMode is that of a new directory, in Unix bits; allocated is its group when it has one of its
// own.
func (d Directory) UnixMode(allocated int) (uint32, error) {
	if d.Mode != "" {
		mode, err := strconv.ParseUint(d.Mode, 8, 32)
		if err != nil || mode > 0o7777 {
			return 0, fmt.Errorf("the mode %q is not octal, from 0 to 7777", Truncate(d.Mode, 64))
		}
		return uint32(mode), nil
	}
	if allocated != 0 {
		return wellknown.AllocatedGIDPerms, nil
	}
	return wellknown.DefaultDirectoryPerms, nil
}

func (d Directory) GIDRange() (lowest, highest int) {
	lowest, highest = d.GIDMin, d.GIDMax
	if lowest == 0 {
		lowest = wellknown.DefaultGIDMin
	}
	if highest == 0 {
		highest = wellknown.DefaultGIDMax
	}
	return lowest, highest
}

// ParseKeep reads how long something stays in the trash.
func ParseKeep(keep string) (duration time.Duration, forever bool, err error) {
	switch keep {
	case "", wellknown.DefaultKeepDeleted:
		return 0, false, nil
	case wellknown.KeepDeletedForever:
		return 0, true, nil
	}
	duration, err = time.ParseDuration(keep)
	if err != nil || duration < 0 {
		return 0, false, fmt.Errorf("%q is not how long something can be kept: write a duration such as 72h, or %s", Truncate(keep, 64), wellknown.KeepDeletedForever)
	}
	return duration, false, nil
}
