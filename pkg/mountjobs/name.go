package mountjobs

import (
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Kind is what a Job is for, and the prefix of its name.
type Kind string

// The kinds of Jobs.
const (
	// Mount Jobs carry out operations, one Job at a time for each file system.
	Mount Kind = wellknown.MountJobPrefix
	// Sweep Jobs empty the trash, beside mount Jobs.
	Sweep Kind = wellknown.SweepJobPrefix
	// Survey Jobs count what volumes use, beside both.
	Survey Kind = wellknown.SurveyJobPrefix
	// Clone Jobs copy a volume, each one, beside all others.
	Clone Kind = wellknown.CloneJobPrefix
	// Ledger Jobs answer administrators, beside the others. They are not the manager's.
	Ledger Kind = wellknown.LedgerJobPrefix
)

// HasOperations reports whether Jobs of the kind carry out operations, and report them.
func (k Kind) HasOperations() bool { return k == Mount || k == Clone }

const (
	numberDigits    = 5 // at least, so that names sort for a long time
	maxNumberDigits = 9 // a name must stay a label's value: 63 bytes
)

// Name is the parts of a Job's name.
type Name struct {
	Kind         Kind
	FileSystemID string
	Number       int
}

// String returns the name: efs-mount-fs-34a3p3-00001. Numbers above 99999 have more digits.
func (n Name) String() string {
	return fmt.Sprintf("%s%s-%0*d", n.Kind, n.FileSystemID, numberDigits, n.Number)
}

// ParseName parses a name. ok is false for names that String does not return.
func ParseName(name string) (parsed Name, ok bool) {
	for _, kind := range []Kind{Mount, Sweep, Survey, Clone} {
		rest, found := strings.CutPrefix(name, string(kind))
		if !found {
			continue
		}
		at := strings.LastIndexByte(rest, '-')
		if at < 0 || len(rest)-at-1 > maxNumberDigits || ports.CheckTargetID(rest[:at]) != nil {
			return Name{}, false
		}
		number, err := strconv.Atoi(rest[at+1:])
		parsed = Name{Kind: kind, FileSystemID: rest[:at], Number: number}
		return parsed, err == nil && number > 0 && parsed.String() == name
	}
	return Name{}, false
}

// NextNumber returns the number of the next Job of a file system: one more than its newest has, so that
// of two leaders only one can create it. Jobs count by name alone, even if they are not ours: a name that
// is in use must not block the file system for ever.
func NextNumber(kind Kind, fileSystemID string, jobs []*batchv1.Job) int {
	newest := 0
	for _, job := range jobs {
		if name, ok := ParseName(job.Name); ok && name.Kind == kind && name.FileSystemID == fileSystemID {
			newest = max(newest, name.Number)
		}
	}
	return newest + 1
}
