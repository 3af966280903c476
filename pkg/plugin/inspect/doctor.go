package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Subject is what a diagnosis is about. The zero Subject is the whole installation.
type Subject struct {
	Claim        types.NamespacedName
	SharedVolume types.NamespacedName
	Pod          types.NamespacedName
	FileSystem   string
	Node         string
}

func (s Subject) String() string {
	switch {
	case s.Claim.Name != "":
		return "claim " + s.Claim.String()
	case s.SharedVolume.Name != "":
		return "sharedvolume " + s.SharedVolume.String()
	case s.Pod.Name != "":
		return "pod " + s.Pod.String()
	case s.FileSystem != "":
		return "file system " + s.FileSystem
	case s.Node != "":
		return "node " + s.Node
	}
	return "the installation"
}

// Diagnosis is what was checked on the way from a subject to EFS, and what was found.
type Diagnosis struct {
	Subject string `json:"subject"`
	Level   Level  `json:"level"`
	// Cause is the result that the others follow from, as far as objects show it; nil if there is
	// nothing to say.
	Cause  *Result    `json:"cause,omitempty"`
	Checks []Examined `json:"checks"`
}

// Examine walks from the subject to the cause.
func Examine(s *Snapshot, subject Subject) Diagnosis {
	f := derive(s)
	scope := f.scopeOf(subject)
	d := Diagnosis{Subject: subject.String()}
	for _, examined := range slices.Concat(f.missing(subject), f.examine(), f.checkPod(subject.Pod)) {
		examined.Results = slices.DeleteFunc(examined.Results, func(r Result) bool { return !scope.has(r) })
		if len(examined.Results) > 0 {
			d.Checks = append(d.Checks, examined)
		}
	}
	d.Level = worst(d.Checks)
	d.Cause = d.findCause()
	return d
}

// continuesIn are the checks in which a cause that the key is a consequence of is found, if there is one.
var continuesIn = map[Cause][]string{
	ManagerSilent:                         {"manager", "leader"},
	WaitsForManager:                       {"manager", "leader"},
	NoLeader:                              {"manager"},
	status.WaitsForFileSystem:             {"table", "file systems"},
	FileSystemUnknown:                     {"table"},
	NoFileSystemNow:                       {"table"},
	status.NoMountJob:                     {"file systems", "mount Jobs"},
	status.SetupFailed:                    {"mount Jobs"},
	status.CloneFailed:                    {"mount Jobs"},
	PodsWaitForMount:                      {"agents", "tunnels", "file systems"},
	JobStuck:                              {"agents", "tunnels"},
	JobLost:                               {"agents", "tunnels"},
	Cause(mountjobs.MountRefused):         {"agents", "tunnels"},
	Cause(mountjobs.MountTimedOut):        {"agents", "tunnels", "file systems"},
	Cause(mountjobs.MountFailed):          {"agents", "tunnels"},
	Cause(mountjobs.NoNodeAgent):          {"agents"},
	Cause(mountjobs.RootClaimUnavailable): {"file systems"},
	status.CleanupFailed:                  {"mount Jobs"},
}

// findCause begins with the first problem on the way, else with the first note, and continues with what it
// follows from.
func (d Diagnosis) findCause() *Result {
	all := slices.Concat(of(d.Checks, Problem), of(d.Checks, Note))
	if len(all) == 0 {
		return nil
	}
	found := all[0]
	for range len(checks()) { // the map has no circle, but may get one
		next := d.firstProblem(continuesIn[found.Cause])
		if next == nil {
			break
		}
		found = *next
	}
	return &found
}

func (d Diagnosis) firstProblem(names []string) *Result {
	for _, name := range names {
		for _, examined := range d.Checks {
			if problems := of([]Examined{examined}, Problem); examined.Check == name && len(problems) > 0 {
				return &problems[0]
			}
		}
	}
	return nil
}

// missing is about a subject that does not exist, or that no check is about.
func (f *facts) missing(subject Subject) []Examined {
	result := Result{Level: OK}
	switch claim := f.claim(subject.Claim); {
	case subject.Claim.Name != "" && claim == nil && !f.lacks(claimResource):
		result = problem(ClaimMissing, subject.String(), "it does not exist",
			fmt.Sprintf("kubectl get pvc --namespace %[1]s; if it was deleted: kubectl efs-stunnel trash list --namespace %[1]s", subject.Claim.Namespace))
	case subject.SharedVolume.Name != "" && f.sharedVolume(subject.SharedVolume) == nil && !f.lacks(sharedResource):
		result = problem(SharedVolumeMissing, subject.String(), "it does not exist", "kubectl get sharedvolumes --namespace "+subject.SharedVolume.Namespace)
	case subject.Pod.Name != "" && f.user(subject.Pod) == nil && !f.lacks("pods"):
		result = problem(PodMissing, subject.String(), "it does not exist", "kubectl get pods --namespace "+subject.Pod.Namespace)
	case subject.Claim.Name != "" && claim != nil && f.sharedVolumeOf(claim) != nil:
		return nil
	case subject.Claim.Name != "" && claim != nil && !f.isClaimOurs(claim):
		result = f.foreign(claim)
		result.Object = subject.String()
	case subject.FileSystem != "" && f.Table != nil && !f.isListed(subject.FileSystem):
		result = problem(FileSystemUnknown, subject.String(), "it is not in the table", findFileSystem)
	case subject.Node != "" && !f.lacks("nodes") && !slices.ContainsFunc(f.Nodes, func(n *corev1.Node) bool { return n.Name == subject.Node }):
		result = problem(NodeMissing, subject.String(), "it does not exist", "kubectl get nodes")
	}
	if result.Level == OK {
		return nil
	}
	return []Examined{{Check: "subject", Results: []Result{result}}}
}

func (f *facts) isListed(id string) bool {
	_, valid := f.table.Targets[id]
	return valid || f.invalid[id] != nil
}

// foreign says why the manager ignores a claim.
func (f *facts) foreign(claim *corev1.PersistentVolumeClaim) Result {
	name := volumes.ClassName(claim)
	exists := slices.ContainsFunc(f.Classes, func(class *storagev1.StorageClass) bool { return class.Name == name })
	switch {
	case f.lacks("storageclasses.storage.k8s.io"):
		return Result{Level: Unknown, Cause: RightMissing, Message: "without a right to list storage classes, it is not known whether it is of provisioner " + f.Provisioner}
	case claim.Spec.VolumeName != "":
		return note(NotOurs, "", "its volume "+claim.Spec.VolumeName+" was not made by provisioner "+f.Provisioner)
	case name == "":
		return f.classless(claim)
	case !exists:
		return problem(ClassMissing, "", fmt.Sprintf("there is no storage class %q", name), "create the class, or a claim of another one: kubectl get storageclass")
	}
	return problem(NotOurs, "", fmt.Sprintf("storage class %q is of another provisioner than %s", name, f.Provisioner), "create a claim of another class")
}

// classless is about a claim that names no storage class.
func (f *facts) classless(claim *corev1.PersistentVolumeClaim) Result {
	_, old := claim.Annotations[wellknown.AnnotationStorageClass]
	if old || claim.Spec.StorageClassName != nil {
		return note(NotOurs, "", `its storage class is "", so it is only bound to a volume without a class`)
	}
	for _, class := range f.Classes {
		if class.Annotations[annotationDefaultClass] == wellknown.ValueTrue {
			return note(WaitsForCluster, "", "it names no storage class; the cluster gives it the default one, "+class.Name)
		}
	}
	return problem(NoDefaultClass, "", "it names no storage class, and the cluster has no default one",
		fmt.Sprintf("create the claim again with storageClassName, or make a class the default: kubectl annotate storageclass NAME %s=true", annotationDefaultClass))
}

const annotationDefaultClass = "storageclass.kubernetes.io/is-default-class"

// write lists every check, with what is fine in a line for each.
func (d Diagnosis) write(w *writer, _ time.Time) {
	switch {
	case d.Level == Problem && d.Cause != nil:
		w.line("%s: %s; cause: %s (%s)", d.Subject, count(len(of(d.Checks, Problem)), "problem"), d.Cause.Cause, d.Cause.Object)
	case d.Level == Problem:
		w.line("%s: %s", d.Subject, count(len(of(d.Checks, Problem)), "problem"))
	case d.Level == Unknown:
		w.line("%s: no problem found, but you may not read everything", d.Subject)
	default:
		w.line("%s: no problem found", d.Subject)
	}
	w.line("\nChecked:")
	for _, examined := range d.Checks {
		w.line("  %-14s  %s", examined.Check, examined.summary())
	}
	w.results(of(d.Checks, Problem))
	w.results(of(d.Checks, Note))
	w.results(slices.DeleteFunc(of(d.Checks, Unknown), func(r Result) bool { return r.unread }))
	w.rights(of(d.Checks, Unknown))
}

// rights lists what the user may not read, each right once: several checks need the same.
func (w *writer) rights(results []Result) {
	var messages []string
	remedy := ""
	for _, r := range results {
		if r.unread && !slices.Contains(messages, r.Message) {
			messages, remedy = append(messages, r.Message), r.Remedy
		}
	}
	if len(messages) > 0 {
		w.line("\nUNKNOWN rights: %s\n  %s\n  do: %s", RightMissing, strings.Join(messages, "\n  "), remedy)
	}
}

func (e Examined) summary() string {
	counts := map[Level]int{}
	for _, r := range e.Results {
		counts[r.Level]++
	}
	if counts[OK] == 1 && len(e.Results) == 1 {
		return e.Results[0].Object + ": " + e.Results[0].Message
	}
	var texts []string
	for _, level := range []Level{Problem, Unknown, Note, OK} {
		switch n := counts[level]; {
		case n > 0 && (level == Problem || level == Note):
			texts = append(texts, count(n, string(level)))
		case n > 0:
			texts = append(texts, fmt.Sprintf("%d %s", n, level))
		}
	}
	return strings.Join(texts, ", ")
}

// NewDiagnosis is that of checks which this package does not make.
func NewDiagnosis(subject string, checks []Examined) Diagnosis {
	return Diagnosis{Subject: subject, Level: worst(checks), Checks: checks}
}
