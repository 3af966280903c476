package mountjobs

import (
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Kind is what a Job is for; it is also how its name starts.
type Kind string

// The kinds of Jobs.
const (
	// Mount Jobs carry out operations, one Job at a time for each file system.
	Mount Kind = wellknown.MountJobPrefix
	// Sweep Jobs empty the trash, beside mount Jobs.
	Sweep Kind = wellknown.SweepJobPrefix
)

const (
	numberDigits    = 5 // at least, so that names sort for a long time
	maxNumberDigits = 9 // a name must stay a label's value: 63 bytes
)

// Name is a Job's name, taken apart.
type Name struct {
	Kind         Kind
	FileSystemID string
	Number       int
}

// String is the name: efs-mount-fs-34a3p3-00001. Numbers above 99999 have more digits.
func (n Name) String() string {
	return fmt.Sprintf("%s%s-%0*d", n.Kind, n.FileSystemID, numberDigits, n.Number)
}

// ParseName takes a name apart. A name that String would not give is none of ours.
func ParseName(name string) (parsed Name, ok bool) {
	for _, kind := range []Kind{Mount, Sweep} {
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

// NextNumber is that of the next Job of a file system: one more than its newest has, so that of
// two leaders only one can create it. Jobs count by name alone, whoever made them: a stranger
// that took a name must not be in the way for ever.
func NextNumber(kind Kind, fileSystemID string, jobs []*batchv1.Job) int {
	newest := 0
	for _, job := range jobs {
		if name, ok := ParseName(job.Name); ok && name.Kind == kind && name.FileSystemID == fileSystemID {
			newest = max(newest, name.Number)
		}
	}
	return newest + 1
}
