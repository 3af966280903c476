package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
)

// Subject names what a diagnosis is about. The zero Subject is the whole installation.
type Subject struct {
	Kind string
	types.NamespacedName
}

// IsNamespaced reports whether the subject is in a namespace.
func (s Subject) IsNamespaced() bool {
	return s.Kind == KindClaim || s.Kind == KindSharedVolume || s.Kind == KindPod
}

func (s Subject) String() string {
	if s.Kind == "" {
		return "the installation"
	}
	return named(s.Kind, strings.TrimPrefix(s.NamespacedName.String(), "/"))
}

// Diagnosis has what was checked on the way from a subject to EFS, and what was found.
type Diagnosis struct {
	Subject string `json:"subject"`
	Level   Level  `json:"level"`
	// Cause is the result that the others follow from, as far as objects show it; nil if there are none.
	Cause  *Result    `json:"cause,omitempty"`
	Checks []Examined `json:"checks"`
}

// Examine walks from the subject to the cause.
func Examine(s *Snapshot, subject Subject) Diagnosis {
	f := derive(s)
	scope := f.scopeOf(subject)
	var checks []Examined
	for _, examined := range slices.Concat(f.missing(subject), f.examine(), f.checkPod(subject)) {
		examined.Results = keep(examined.Results, scope.has)
		if len(examined.Results) > 0 {
			checks = append(checks, examined)
		}
	}
	linkProblems(checks)
	d := NewDiagnosis(subject.String(), checks)
	d.Cause = d.findCause()
	return d
}

// continuesIn are the checks in which a cause that the key is a consequence of is found, if there is one.
var continuesIn = map[Cause][]string{
	ManagerSilent:                         {"manager", "leader"},
	NoLeader:                              {"manager"},
	status.WaitsForFileSystem:             {"table", "file systems"},
	FileSystemUnknown:                     {"table"},
	NoFileSystemNow:                       {"table"},
	status.ClassRefused:                   {"classes"},
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
	status.EntryFailed:                    {"mount Jobs"},
}

// findCause returns what the first problem follows from, else that problem, else the first note.
func (d Diagnosis) findCause() *Result {
	problems := of(d.Checks, Problem)
	all := slices.Concat(problems, of(d.Checks, Note))
	if len(all) == 0 {
		return nil
	}
	found := first(problems, func(r Result) bool { return r.title() == all[0].FollowsFrom })
	return new(cmp.Or(found, all[0]))
}

// missing is about a subject that does not exist, or that no check is about.
func (f *facts) missing(subject Subject) []Examined {
	isThere, resource, result := true, "", problem("", subject.String(), "it does not exist")
	claim := f.claims[subject.NamespacedName]
	switch subject.Kind {
	case KindClaim:
		isThere, resource, result.Cause = claim != nil, claimResource, ClaimMissing
	case KindSharedVolume:
		isThere, resource, result.Cause = f.shared[subject.NamespacedName] != nil, sharedResource, SharedVolumeMissing
	case KindPod:
		isThere, resource, result.Cause = f.users[subject.NamespacedName] != nil, "pods", PodMissing
	case KindNode:
		isThere = slices.ContainsFunc(f.Nodes, func(n *corev1.Node) bool { return n.Name == subject.Name })
		resource, result.Cause = "nodes", NodeMissing
	case KindFileSystem:
		isThere, resource, result.Cause = f.Table == nil || f.isListed(subject.Name), "configmaps", FileSystemUnknown
		result.Message = "it is not in the table"
	}
	switch isForeign := subject.Kind == KindClaim && claim != nil && f.sharedVolumeOf(claim) == nil && !f.isClaimOurs(claim); {
	case isForeign:
		result = f.foreign(claim)
		result.Object = subject.String()
	case isThere || f.lacks(resource):
		return nil
	}
	return []Examined{{Check: "subject", Results: []Result{f.withRemedy(result)}}}
}

// Print lists every check, with what is fine in a line for each.
func (d Diagnosis) Print(w *printing.Writer, _ time.Time) {
	problems := of(d.Checks, Problem)
	text := noProblem
	switch {
	case d.Level == Problem && d.Cause != nil:
		text = fmt.Sprintf("%s; cause: %s (%s)", printing.Count(len(problems), "problem"), d.Cause.Cause, d.Cause.Object)
	case d.Level == Problem:
		text = printing.Count(len(problems), "problem")
	case d.Level == Unknown:
		text = noProblemRead
	}
	w.Line("%s: %s", d.Subject, text)
	w.Line("\nChecked:")
	for _, examined := range d.Checks {
		w.Line("  %-14s  %s", examined.Check, examined.summary())
	}
	writeResults(w, problems)
	writeResults(w, of(d.Checks, Note))
	isRight := func(r Result) bool { return r.unread }
	writeResults(w, slices.DeleteFunc(of(d.Checks, Unknown), isRight))
	writeRights(w, keep(of(d.Checks, Unknown), isRight))
}

// writeRights lists what the user may not read, each right once: several checks need the same.
func writeRights(w *printing.Writer, results []Result) {
	var messages []string
	for _, r := range results {
		if !slices.Contains(messages, r.Message) {
			messages = append(messages, r.Message)
		}
	}
	if len(messages) > 0 {
		w.Line("\nUNKNOWN rights: %s\n  %s\n  do: %s", RightMissing, strings.Join(messages, "\n  "), results[0].Remedy)
	}
}

func (e Examined) summary() string {
	if len(e.Results) == 1 && e.Results[0].Level == OK {
		return e.Results[0].Object + ": " + e.Results[0].Message
	}
	var texts []string
	for _, level := range []Level{Problem, Unknown, Note, OK} {
		switch n := len(of([]Examined{e}, level)); {
		case n > 0 && (level == Problem || level == Note):
			texts = append(texts, printing.Count(n, string(level)))
		case n > 0:
			texts = append(texts, fmt.Sprintf("%d %s", n, level))
		}
	}
	return strings.Join(texts, ", ")
}

// NewDiagnosis returns that of checks which this package does not make.
func NewDiagnosis(subject string, checks []Examined) Diagnosis {
	return Diagnosis{Subject: subject, Level: worst(checks), Checks: checks}
}

func (r Result) title() string { return join(r.Object, string(r.Cause)) }

// linkProblems has each problem name the one that it follows from. Of several with one cause, the others name the first.
func linkProblems(all []Examined) {
	var problems []*Result
	for _, examined := range all {
		for i := range examined.Results {
			if r := &examined.Results[i]; r.Level == Problem {
				problems = append(problems, r)
			}
		}
	}
	parents, firsts := map[*Result]*Result{}, map[string]*Result{}
	for _, r := range problems {
		key := r.check + cmp.Or(r.from, string(r.Cause)+cmp.Or(r.said, r.Message))
		parents[r] = cmp.Or(parentOf(r, problems), firsts[key])
		firsts[key] = cmp.Or(firsts[key], r)
	}
	for _, r := range problems {
		top := r
		for range problems { // links have no circle, but may get one
			top = cmp.Or(parents[top], top)
		}
		if top != r {
			r.FollowsFrom = top.title()
		}
	}
}

// parentOf returns the problem of another object that one follows from, nil if none is known.
func parentOf(r *Result, problems []*Result) *Result {
	for _, check := range continuesIn[r.Cause] {
		if i := slices.IndexFunc(problems, func(p *Result) bool { return p != r && p.check == check && r.dependsOn(p.part()) }); i >= 0 {
			return problems[i]
		}
	}
	return nil
}

// dependsOn reports whether a result may be caused by a part: its own class, file system or node, or what all have.
func (r *Result) dependsOn(part string) bool {
	switch kind, name := split(part); kind {
	case KindClass:
		return name == r.class
	case KindNode:
		return name == r.node
	case KindFileSystem:
		return name == r.fileSystem || part == r.part()
	}
	return true
}

// Entry is a problem with the objects of those that follow from it.
type Entry struct {
	Result

	Follows []string
}

// Entries returns one for each cause.
func Entries(results []Result) (entries []Entry) {
	at := map[string]int{}
	for _, r := range results {
		if r.FollowsFrom == "" {
			at[r.title()] = len(entries)
			entries = append(entries, Entry{Result: r})
		}
	}
	for _, r := range results {
		if i, ok := at[r.FollowsFrom]; ok {
			entries[i].Follows = append(entries[i].Follows, r.Object)
		}
	}
	return entries
}

// writeResults leaves out most where a single cause has many claims wait.
func writeResults(w *printing.Writer, results []Result) {
	ofClaims := 0
	for _, r := range Entries(results) {
		if kind, _ := split(r.part()); kind == KindClaim {
			if ofClaims++; ofClaims > shownRows {
				continue
			}
		}
		w.Line("\n%s %s", strings.ToUpper(string(r.Level)), r.title())
		w.Line("  %s", r.Message)
		if len(r.Follows) > 0 {
			w.Line("  %s from it, or of the same cause: %s", printing.Count(len(r.Follows), "more problem"), status.FirstFew(r.Follows))
		}
		if r.Remedy != "" {
			w.Line("  do: %s", r.Remedy)
		}
	}
	if hidden := ofClaims - shownRows; hidden > 0 {
		w.Line("\n… and %d more claims or volumes: -o json has all", hidden)
	}
}

const (
	noProblem     = "no problem found"
	noProblemRead = "no problem found, but you may not read everything"
)

// Summary returns the level in words.
func (s Status) Summary() string {
	switch s.Level {
	case Problem:
		return s.problemsText()
	case Unknown:
		return noProblemRead
	}
	return "healthy"
}

// problemsText counts problems of the installation apart from those of single objects, which tenants make.
func (s Status) problemsText() string {
	counts := map[string]int{}
	for _, r := range s.Problems {
		if r.layer < classes {
			r.check = "installation"
		}
		counts[r.check]++
	}
	texts := []string{"installation: " + printing.Count(counts["installation"], "problem")}
	for _, check := range []string{"claims", "classes", "volumes", "shared volumes"} {
		if counts[check] > 0 {
			texts = append(texts, check+": "+printing.Count(counts[check], "problem"))
		}
	}
	return strings.Join(texts, "; ")
}
