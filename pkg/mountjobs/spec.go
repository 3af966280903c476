package mountjobs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
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
	Kind         Kind // "" is Mount; of a ledger Job, BuildLedger sets it
	FileSystemID string
	// Number is from NextNumber.
	Number int
	// Aliases are the ids that the file system may carry as a copy of another.
	Aliases []string
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
}

func (s Spec) kind() Kind { return cmp.Or(s.Kind, Mount) }

// lingers reports whether the Job's worker waits for more operations.
func (s Spec) lingers() bool { return s.Linger > 0 && s.Leader.Address != "" }

func (s Settings) timeout() time.Duration {
	if s.Timeout <= 0 {
		return wellknown.DefaultMountJobTimeout
	}
	return s.Timeout
}

// check refuses invalid parts of names and arguments.
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
