package mountauth

import "fmt"

// Cause is the kind of a refusal, by which refusals are counted.
type Cause string

// The causes of refusals.
const (
	Certificate  Cause = "certificate"   // not of the form that EFS's clients use
	Validity     Cause = "validity"      // not yet or no longer valid
	FileSystem   Cause = "file-system"   // for another file system
	AccessPoint  Cause = "access-point"  // unknown, of another file system, or not available
	IAMMissing   Cause = "iam-missing"   // the file system requires a signature
	IAMKey       Cause = "iam-key"       // signed with an unknown access key
	IAMDate      Cause = "iam-date"      // signed in the future, or too long ago
	IAMSignature Cause = "iam-signature" // not the signature of this key, file system and region
)

// Refusal is the reason why a client is refused.
type Refusal struct {
	Cause  Cause
	Reason string
}

// Refuse makes a refusal; the format is that of fmt.Sprintf.
func Refuse(cause Cause, format string, args ...any) *Refusal {
	return &Refusal{cause, fmt.Sprintf(format, args...)}
}

func (r *Refusal) Error() string { return string(r.Cause) + ": " + r.Reason }
