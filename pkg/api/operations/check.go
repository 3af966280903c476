package operations

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Check finds what is wrong with an operation on any file system. CheckPath is about its path.
func (o Operation) Check() error {
	if err := checkVolumeName(o.Volume); err != nil {
		return err
	}
	for _, field := range []struct {
		name, value string
		optional    bool
	}{
		{"cluster", o.Cluster, false},
		{"namespace", o.Namespace, false},
		{"claim", o.Claim, false},
		{"claim uid", o.ClaimUID, false},
		{"namespace uid", o.NamespaceUID, true},
		{"class", o.Class, true},
		{"cluster to take over", o.TakeOver, true},
		{"claim that it is given to", o.GivenTo, true},
	} {
		if err := CheckIdentity(field.value); err != nil && (field.value != "" || !field.optional) {
			return fmt.Errorf("the %s %q %w", field.name, Truncate(field.value, 64), err)
		}
	}
	if o.Size < 0 {
		return fmt.Errorf("the size %d is negative", o.Size)
	}
	switch o.Kind {
	case Setup:
		if !o.Adopt && (o.TakeOver != "" || o.GivenTo != "") {
			return errors.New("only an adoption takes something over, or is for another claim")
		}
		if o.Reads && !o.Adopt && (checkVolumeName(o.SourceVolume) != nil || CheckIdentity(o.SourceClaimUID) != nil) {
			return errors.New("a reader needs the volume and the claim of the owner")
		}
		return o.Directory.check()
	case Restore:
		if o.RestoreFrom == "" || checkVolumeName(wellknown.VolumePrefix+o.RestoreFrom) != nil {
			return fmt.Errorf("%q is not the uid of a claim to restore", Truncate(o.RestoreFrom, 64))
		}
		return nil
	case Clone:
		return o.checkSource()
	case Cleanup:
		_, _, err := ParseKeep(o.Keep)
		return err
	case Release:
		return nil
	default:
		return fmt.Errorf("this version of mountjob has no operation %q: use the image that belongs to the manager", Truncate(string(o.Kind), 64))
	}
}

// checkSource finds what is wrong with the source of a clone. One that is abandoned needs none.
func (o Operation) checkSource() error {
	if o.Abandon {
		return nil
	}
	if err := CheckPath(o.SourcePath); err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if err := checkVolumeName(o.SourceVolume); err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	for name, value := range map[string]string{"claim": o.SourceClaim, "claim uid": o.SourceClaimUID} {
		if err := CheckIdentity(value); err != nil {
			return fmt.Errorf("the source's %s %q %w", name, Truncate(value, 64), err)
		}
	}
	if o.SourcePath == o.Path || strings.HasPrefix(o.Path, o.SourcePath+"/") || strings.HasPrefix(o.SourcePath, o.Path+"/") {
		return fmt.Errorf("the copy %q and its source %q would be the same directory, or one inside the other", Truncate(o.Path, 256), Truncate(o.SourcePath, 256))
	}
	return nil
}

// checkVolumeName allows the names of Kubernetes that are not ambiguous as a file name of the ledger.
func checkVolumeName(name string) error {
	const longest = wellknown.MaxComponentBytes - len(wellknown.OwnerPrefix) - len(wellknown.RetainedSuffix)
	switch {
	case name == "":
		return errors.New("the volume has no name")
	case len(name) > longest:
		return fmt.Errorf("the volume name %q… has more than %d bytes", Truncate(name, 64), longest)
	}
	for _, suffix := range []string{wellknown.LeavingSuffix, wellknown.RetainedSuffix} {
		if strings.HasSuffix(name, suffix) {
			return fmt.Errorf("the volume name %q ends in %s, which is reserved", Truncate(name, 64), suffix)
		}
	}
	for i, c := range []byte(name) {
		if alphanumeric := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'; !alphanumeric && (i == 0 || c != '-' && c != '.') {
			return fmt.Errorf("the volume name %q is no name of a Kubernetes object", Truncate(name, 64))
		}
	}
	return nil
}

// CheckIdentity bounds the names and ids that go into ledger and reports.
func CheckIdentity(value string) error {
	switch {
	case value == "":
		return errors.New("is empty")
	case len(value) > wellknown.MaxComponentBytes:
		return fmt.Errorf("has more than %d bytes", wellknown.MaxComponentBytes)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		return errors.New("has control characters or is not valid UTF-8")
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

// CheckPath says why a path cannot be a volume's. A path that passes has one spelling and means the
// same to every program. Symbolic links are checked when mountjob walks the path.
func CheckPath(p string) error {
	switch {
	case p == "":
		return errors.New("the path is empty")
	case p[0] != '/':
		return fmt.Errorf("the path %q does not start with /", Truncate(p, 256))
	case p == "/":
		return errors.New("the path / is the whole file system")
	case len(p) > wellknown.MaxPathBytes:
		return fmt.Errorf("the path %q… has %d bytes, more than %d", Truncate(p, 64), len(p), wellknown.MaxPathBytes)
	}
	for component := range strings.SplitSeq(p[1:], "/") {
		if err := checkComponent(component); err != nil {
			return fmt.Errorf("the path %q %w", Truncate(p, 256), err)
		}
	}
	if p == wellknown.StateDirectory || strings.HasPrefix(p, wellknown.StateDirectory+"/") {
		return fmt.Errorf("the path %q is in %s, where no volume may be", Truncate(p, 256), wellknown.StateDirectory)
	}
	return nil
}

func checkComponent(component string) error {
	switch {
	case component == "":
		return errors.New("has an empty component")
	case component == "." || component == "..":
		return fmt.Errorf("has the component %s", component)
	case len(component) > wellknown.MaxComponentBytes:
		return fmt.Errorf("has a component of %d bytes, more than %d", len(component), wellknown.MaxComponentBytes)
	case strings.HasPrefix(component, wellknown.OwnerPrefix):
		return fmt.Errorf("has a component that starts with %s, which is reserved", wellknown.OwnerPrefix)
	case strings.Contains(component, `\`):
		return errors.New("has a backslash")
	case !utf8.ValidString(component):
		return errors.New("is not valid UTF-8") // JSON would replace the bytes: mountjob would get another path
	case strings.ContainsFunc(component, unicode.IsControl):
		return errors.New("has a control character")
	}
	return nil
}

// Truncate shortens s to at most n bytes, and never inside a character.
func Truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Shorten truncates s to at most n bytes, the last of which show that it was longer.
func Shorten(s string, n int) string {
	const ellipsis = "…"
	if len(s) <= n {
		return s
	}
	return Truncate(s, max(n-len(ellipsis), 0)) + ellipsis
}
