package inspect

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Level says whether a user has to act on a result.
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

// Result is what one check found about one object.
type Result struct {
	Level   Level  `json:"level"`
	Cause   Cause  `json:"cause,omitempty"`
	Object  string `json:"object"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"` // a command or an edit

	// What the result is about, as far as it is about one of these.
	claim      types.NamespacedName
	class      string
	fileSystem string
	node       string
	// installation says that it is of interest to no single subject.
	installation bool
	check        string // that found it
	layer        layer
	unread       bool // it says that a right is missing, which other checks may, too
}

func (r Result) ofClaim(namespace, name string) Result {
	r.claim = types.NamespacedName{Namespace: namespace, Name: name}
	return r
}

func (r Result) ofClass(name string) Result { r.class = name; return r }

func (r Result) ofFileSystem(id string) Result { r.fileSystem = id; return r }

func (r Result) ofNode(name string) Result { r.node = name; return r }

func (r Result) ofInstallation() Result { r.installation = true; return r }

func fine(object, format string, args ...any) Result {
	return Result{Level: OK, Object: object, Message: fmt.Sprintf(format, args...)}
}

func note(cause Cause, object, message string) Result {
	return Result{Level: Note, Cause: cause, Object: object, Message: message}
}

func problem(cause Cause, object, message, remedy string) Result {
	return Result{Level: Problem, Cause: cause, Object: object, Message: message, Remedy: remedy}
}

// check examines one part of an installation.
type check struct {
	name  string
	needs []string // resources without which it says nothing
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
		{"classes", []string{"storageclasses.storage.k8s.io"}, (*facts).checkClasses, classes},
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

const (
	claimResource  = "persistentvolumeclaims"
	volumeResource = "persistentvolumes"
)

// Examined is what one check found.
type Examined struct {
	Check   string   `json:"check"`
	Results []Result `json:"results"`
}

// examine runs all checks.
func (f *facts) examine() []Examined {
	var all []Examined
	for _, c := range checks() {
		examined := Examined{c.name, append(f.cannotCheck(c), c.run(f)...)}
		for i := range examined.Results {
			examined.Results[i].check, examined.Results[i].layer = c.name, c.layer
		}
		all = append(all, examined)
	}
	return all
}

// cannotCheck says that a check is incomplete.
func (f *facts) cannotCheck(c check) []Result {
	var results []Result
	for _, unread := range f.Unread {
		if slices.Contains(c.needs, unread.Resource) {
			results = append(results, unread.Result(c.name))
		}
	}
	return results
}

// worst says how a number of checks ended.
func worst(all []Examined) Level {
	order := []Level{OK, Note, Unknown, Problem}
	level := OK
	for _, examined := range all {
		for _, result := range examined.Results {
			level = order[max(slices.Index(order, level), slices.Index(order, result.Level))]
		}
	}
	return level
}

// of selects results of a level.
func of(all []Examined, level Level) []Result {
	var found []Result
	for _, examined := range all {
		for _, result := range examined.Results {
			if result.Level == level {
				found = append(found, result)
			}
		}
	}
	return found
}
