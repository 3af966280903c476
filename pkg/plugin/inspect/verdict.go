package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Level tells whether a user has to act on a result.
type Level string

// The levels of results.
const (
	OK      Level = "ok"
	Note    Level = "note"    // worth knowing: it ends by itself, or is wanted so
	Unknown Level = "unknown" // the user lacks a right to find out
	Problem Level = "problem"
)

// Cause is a stable name, for scripts, of what a result says.
type Cause string

// Result has what one check found about one object.
type Result struct {
	Level   Level  `json:"level"`
	Cause   Cause  `json:"cause,omitempty"`
	Object  string `json:"object"` // its kind, a space, and its name
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"` // a command or an edit
	// FollowsFrom is the title of the problem that a problem follows from, or that has the same cause.
	FollowsFrom string `json:"followsFrom,omitempty"`

	// within names the object with which a subject has the result, if that is not Object itself.
	within     string
	fileSystem string // of a claim
	class      string // of a claim
	node       string // where pods are that do not start
	from       string // what the object itself says that it follows from
	said       string // Message without its age, if it has one
	check      string // that found it
	layer      layer
	unread     bool // it says that a right is missing, which other checks may, too
}

// Kinds of objects that subjects are, or that have results of their own in the diagnosis of a subject.
const (
	KindClaim        = "claim"
	KindSharedVolume = "sharedvolume"
	KindPod          = "pod"
	KindFileSystem   = "file system"
	KindNode         = "node"
	KindClass        = "storage class"
)

// named returns an object's name in results: its kind and its name, with its namespace if it has one.
func named(kind string, name ...string) string { return kind + " " + strings.Join(name, "/") }

func split(object string) (kind, name string) {
	i := max(strings.LastIndexByte(object, ' '), 0)
	return object[:i], strings.TrimSpace(object[i:])
}

// part returns the object with which a subject has the result.
func (r Result) part() string { return cmp.Or(r.within, r.Object) }

func (r Result) in(within string) Result { r.within = within; return r }

// Fine returns that an object is as it should be.
func Fine(object, format string, args ...any) Result {
	return Result{Level: OK, Object: object, Message: fmt.Sprintf(format, args...)}
}

func note(cause Cause, object, message string) Result {
	return Result{Level: Note, Cause: cause, Object: object, Message: message}
}

func problem(cause Cause, object, message string) Result {
	return Result{Level: Problem, Cause: cause, Object: object, Message: message}
}

type check struct {
	name  string
	needs []string // resources without which it is incomplete
	run   func(*facts) []Result
	layer layer
}

// layer ranks what a check is about: whom a problem of it concerns, and so the order in a Status.
type layer int

const (
	dataPath      layer = iota // mounted volumes of whole nodes
	control                    // what makes and removes volumes
	classes                    // configuration that claims depend on
	configuration              // single objects, which often wait for a problem of a layer above
)

// checks are in the order of the way from a claim to EFS.
func checks() []check {
	return []check{
		{"claims", []string{claimResource}, (*facts).checkClaims, configuration},
		{"classes", []string{classResource}, (*facts).checkClasses, classes},
		{"volumes", []string{volumeResource}, (*facts).checkVolumes, configuration},
		{"shared volumes", []string{sharedResource}, (*facts).checkSharedVolumes, configuration},
		{"manager", []string{"deployments.apps"}, (*facts).checkManager, control},
		{"leader", []string{"leases.coordination.k8s.io"}, (*facts).checkLeader, control},
		{"versions", []string{"deployments.apps", "daemonsets.apps"}, (*facts).checkVersions, control},
		{"table", []string{"configmaps"}, (*facts).checkTable, control},
		{"file systems", []string{"configmaps"}, (*facts).checkFileSystems, dataPath},
		{"mount Jobs", []string{"jobs.batch"}, (*facts).checkJobs, control},
		{"agents", []string{"daemonsets.apps", "pods", "nodes"}, (*facts).checkAgents, dataPath},
		{"tunnels", []string{"nodes", tunnelResource}, (*facts).checkTunnels, dataPath},
		{"host names", []string{"nodes"}, (*facts).checkHostNames, dataPath},
	}
}

// Examined has what one check found.
type Examined struct {
	Check   string   `json:"check"`
	Results []Result `json:"results"`
}

func (f *facts) examine() (all []Examined) {
	for _, c := range checks() {
		examined := Examined{Check: c.name}
		for _, unread := range f.Unread {
			if slices.Contains(c.needs, unread.Resource) {
				examined.Results = append(examined.Results, Incomplete(unread, c.name))
			}
		}
		for _, r := range c.run(f) {
			examined.Results = append(examined.Results, f.withRemedy(r))
		}
		for i := range examined.Results {
			examined.Results[i].check, examined.Results[i].layer = c.name, c.layer
		}
		all = append(all, examined)
	}
	return all
}

// worst returns how a number of checks ended.
func worst(all []Examined) Level {
	level := OK
	for _, next := range []Level{Note, Unknown, Problem} {
		if len(of(all, next)) > 0 {
			level = next
		}
	}
	return level
}

func of(all []Examined, level Level) (found []Result) {
	for _, examined := range all {
		for _, result := range examined.Results {
			if result.Level == level {
				found = append(found, result)
			}
		}
	}
	return found
}

// facts are a snapshot with what follows from single objects of it.
type facts struct {
	*Snapshot
	table    ports.Table
	tableErr error                  // why the table cannot be read
	invalid  map[string]error       // targets that cannot be read
	classes  map[string]storedClass // ours, by name
	jobs     []jobFacts             // ours, the newest first
	attempts map[string]jobFacts    // the newest Job with an operation for each volume
	claims   map[types.NamespacedName]*corev1.PersistentVolumeClaim
	users    map[types.NamespacedName]*corev1.Pod
	shared   map[types.NamespacedName]*v1alpha1.SharedVolume
	volumes  map[string]volumes.Volume   // by name
	events   map[eventKey][]corev1.Event // the newest first
	tunnels  map[string]*v1alpha1.NodeTunnels
	shown    map[string][]metav1.Condition // of file systems, by id
}

type storedClass struct {
	object *storagev1.StorageClass
	class  volumes.Class
	err    error // why claims of it are refused
}

// jobFacts is a Job of the manager, and what became of it.
type jobFacts struct {
	job     *batchv1.Job
	outcome mountjobs.Outcome
	err     error // its operations cannot be read
	// reason and message say what keeps it from running, if anything does.
	reason  mountjobs.Reason
	message string
}

func derive(s *Snapshot) *facts {
	f := &facts{
		Snapshot: s, classes: map[string]storedClass{}, volumes: map[string]volumes.Volume{},
		attempts: map[string]jobFacts{}, events: map[eventKey][]corev1.Event{}, shown: map[string][]metav1.Condition{},
		claims:  reading.Index(s.Claims, reading.NameOf),
		users:   reading.Index(s.Users, reading.NameOf),
		shared:  reading.Index(s.SharedVolumes, reading.NameOf),
		tunnels: reading.Index(s.NodeTunnels, (*v1alpha1.NodeTunnels).GetName),
	}
	for _, object := range s.FileSystemObjects {
		f.shown[object.Name] = object.Status.Conditions
	}
	if s.Table != nil {
		f.table, f.invalid, f.tableErr = ports.DecodeLenient([]byte(s.Table.Data[wellknown.TargetsKey]))
	}
	for _, object := range s.OurClasses() {
		class, err := volumes.ParseClass(object)
		f.classes[object.Name] = storedClass{object, class, err}
	}
	for _, object := range s.Volumes {
		f.volumes[object.Name] = volumes.Read(object, s.Provisioner)
	}
	f.deriveEvents()
	f.deriveJobs()
	return f
}

func (f *facts) deriveEvents() {
	for _, event := range f.Events {
		f.events[keyOf(event)] = append(f.events[keyOf(event)], event)
	}
	for _, events := range f.events {
		slices.SortStableFunc(events, func(a, b corev1.Event) int { return mountjobs.LastSeen(b).Compare(mountjobs.LastSeen(a)) })
	}
}

func (f *facts) deriveJobs() {
	for _, job := range f.OurJobs() {
		j := jobFacts{job: job}
		j.outcome, j.err = mountjobs.Read(job, f.Pods, f.Now)
		if j.outcome.State == mountjobs.Running {
			j.reason, j.message = mountjobs.Diagnose(job, mountjobs.NewestPod(job, f.Pods), f.Events)
		}
		f.jobs = append(f.jobs, j)
	}
	slices.SortStableFunc(f.jobs, func(a, b jobFacts) int {
		return cmp.Or(cmp.Compare(b.outcome.Name.Number, a.outcome.Name.Number), strings.Compare(a.job.Name, b.job.Name))
	})
	for _, j := range slices.Backward(f.jobs) {
		for _, operation := range j.outcome.Operations {
			f.attempts[operation.Volume] = j
		}
	}
}

// ofConditions returns what those of an object say that are False.
func (f *facts) ofConditions(object string, all []metav1.Condition) (results []Result) {
	for _, c := range all {
		if c.Status == metav1.ConditionFalse {
			results = append(results, f.lasting(problem(Cause(c.Reason), object, c.Message), c.LastTransitionTime.Time))
		}
	}
	return results
}

// lasting adds to a result for how long it has been so.
func (f *facts) lasting(r Result, since time.Time) Result {
	r.said = r.Message
	r.Message = fmt.Sprintf("%s (for %s)", r.said, age(f.Now, since))
	return r
}

func join(text, why string) string {
	if why == "" {
		return text
	}
	return text + ": " + why
}
