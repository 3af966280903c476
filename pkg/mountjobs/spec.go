package mountjobs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Settings are the same for every Job of a manager, and chosen by the administrator. What limits a Job's
// permissions is fixed in code.
type Settings struct {
	Namespace string
	// Image contains Program.
	Image            string
	ImagePullPolicy  corev1.PullPolicy // "" leaves it to Kubernetes
	ImagePullSecrets []string
	// PriorityClassName is that of mount Jobs, not of sweeps; "" is the cluster's default.
	PriorityClassName string
	// Tolerations are added to those of every Job.
	Tolerations []corev1.Toleration
	// NodeSelector has labels that the nodes of every Job must have.
	NodeSelector map[string]string
	// Timeout is the deadline of a Job's pod; 0 is wellknown.DefaultMountJobTimeout.
	Timeout time.Duration
	// Linger is how long a Job's worker waits for more operations; 0 is not at all.
	Linger time.Duration
}

// Leader is the address from which a worker requests more operations; the zero Leader is none.
type Leader struct {
	Address string // host:port
	// Key is the SHA-256 of the leader's public key, in hex.
	Key string
}

// Spec is what one Job is built from.
type Spec struct {
	Settings
	Kind         Kind // "" is Mount
	FileSystemID string
	// Number is from NextNumber.
	Number int
	// Aliases are the ids that the file system may carry as a copy of another.
	Aliases []string
	// Used says that volumes are on a server of one's own, whose disk may be another one.
	Used bool
	// Operations are a batch from Pack, of a mount Job, or the one that a clone Job carries out.
	Operations []operations.Operation
	// Survey is how far the survey is that a survey Job continues.
	Survey SurveyRecord
	// AvoidNodes are those where the Job must not run, see NodesToAvoid.
	AvoidNodes []string
	// NoNode is true while no node takes the Job, see Settings.Takes.
	NoNode bool
	// Leader is the one that creates the Job.
	Leader Leader

	request requests.Request // of a ledger Job
}

func (s Settings) timeout() time.Duration {
	return cmp.Or(max(s.Timeout, 0), wellknown.DefaultMountJobTimeout)
}

func (s Spec) check() error {
	if s.Namespace == "" || s.Image == "" {
		return errors.New("a Job needs a namespace and an image")
	}
	for _, id := range append([]string{s.FileSystemID}, s.Aliases...) {
		if err := ports.CheckTargetID(id); err != nil {
			return err
		}
	}
	if longest := strings.Repeat("9", maxNumberDigits); s.Number < 1 || len(fmt.Sprint(s.Number)) > len(longest) {
		return fmt.Errorf("a Job's number is from 1 to %s, not %d", longest, s.Number)
	}
	return nil
}

// SurveyRecord is how far a survey is. The root claim has the newest, and each survey Job that of its creation.
type SurveyRecord struct {
	Began time.Time `json:"began,omitzero"` // of the survey, which may take several Jobs
	// After is the path of the last volume that was counted, "" before the first.
	After string    `json:"after,omitempty"`
	Ended time.Time `json:"ended,omitzero"` // zero until every volume was counted
	// Failures are the last Jobs that have counted nothing, and Retry is when the next may begin.
	Failures int       `json:"failures,omitempty"`
	Retry    time.Time `json:"retry,omitzero"`
}

// Encode writes the record as the value of wellknown.AnnotationSurvey.
func (r SurveyRecord) Encode() string {
	r.Began, r.Ended, r.Retry = r.Began.UTC().Truncate(time.Second), r.Ended.UTC().Truncate(time.Second), r.Retry.UTC().Truncate(time.Second)
	return encode(r)
}

// SurveyRecordOf reads the record of a root claim or a Job. One that cannot be read is the zero value: the
// next survey begins from the start.
func SurveyRecordOf(annotations map[string]string) SurveyRecord {
	var record SurveyRecord
	err := json.Unmarshal([]byte(annotations[wellknown.AnnotationSurvey]), &record)
	if err != nil || record.Failures < 0 || record.After != "" && operations.CheckPath(record.After) != nil {
		return SurveyRecord{}
	}
	return record
}

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

// NextNumber returns the number of the next Job of a file system, one more than its newest has: of two leaders only one
// can create it. Jobs that are not ours count, too: a name in use must not block the file system for ever.
func NextNumber(kind Kind, fileSystemID string, jobs []*batchv1.Job) int {
	newest := 0
	for _, job := range jobs {
		if name, ok := ParseName(job.Name); ok && name.Kind == kind && name.FileSystemID == fileSystemID {
			newest = max(newest, name.Number)
		}
	}
	return newest + 1
}

// ErrNotOurs is the error for a Job that the manager did not create.
var ErrNotOurs = errors.New("the manager did not create it")

// ErrFormat is the error for operations of a Job that are damaged, or of another version of the manager.
var ErrFormat = errors.New("its operations cannot be read by this version of the manager")

// Identify parses the name of a Job. A Job is ours if its labels match its name and it has no owner.
func Identify(job *batchv1.Job) (Name, error) {
	name, ok := ParseName(job.Name)
	if !ok {
		return Name{}, fmt.Errorf("identifying Job %s: %w: its name is not of our form", job.Name, ErrNotOurs)
	}
	for key, want := range Labels(name.Kind, name.FileSystemID) {
		if got := job.Labels[key]; got != want {
			return Name{}, fmt.Errorf("identifying Job %s: %w: its label %s is %q, not %q", job.Name, ErrNotOurs, key, shorten(got, 64), want)
		}
	}
	if owner := metav1.GetControllerOfNoCopy(job); owner != nil {
		return Name{}, fmt.Errorf("identifying Job %s: %w: %s %s owns it", job.Name, ErrNotOurs, owner.Kind, shorten(owner.Name, 64))
	}
	return name, nil
}

// IsUnreleased reports whether the outcome of a Job was not used yet.
func IsUnreleased(job *batchv1.Job) bool {
	return slices.Contains(job.Finalizers, wellknown.FinalizerOutcome)
}
