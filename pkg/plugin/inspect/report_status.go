package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Status is an overview of an installation.
type Status struct {
	Namespace   string       `json:"namespace"`
	Provisioner string       `json:"provisioner"`
	Level       Level        `json:"level"` // the worst of all checks
	Problems    []Result     `json:"problems"`
	Unread      []string     `json:"missingRights"`
	Programs    []Program    `json:"programs"`
	Leader      Leader       `json:"leader"`
	FileSystems []FileSystem `json:"fileSystems"`
	Agents      []Agent      `json:"agents"`
	Claims      []Claim      `json:"waitingClaims"`
	// SharedVolumes are those that are not ready, of SharedVolumeCount.
	SharedVolumes     []SharedVolume                       `json:"waitingSharedVolumes"`
	SharedVolumeCount int                                  `json:"sharedVolumeCount"`
	Volumes           map[corev1.PersistentVolumePhase]int `json:"volumes"`
	Jobs              []Job                                `json:"jobs"`

	unread []Unread
}

// FileSystem is a target of the table.
type FileSystem struct {
	ID           string            `json:"id"`
	Name         string            `json:"name"`
	Port         int               `json:"port"`
	State        string            `json:"state"`
	MountTargets map[string]string `json:"mountTargets"` // address by zone, or by subnet; the IPv4 one first where there are two
	AccessPoints map[string]int    `json:"accessPoints,omitempty"`
	Volumes      int               `json:"volumes"`
	// NextSweep is when the trash has something to remove, "never", "none yet" while nothing was swept,
	// or "" if the root claim cannot be read.
	NextSweep string `json:"nextSweep,omitempty"`
}

// Claim is one that waits, or is being deleted.
type Claim struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Class     string    `json:"class"`
	Created   time.Time `json:"created"`
	Level     Level     `json:"level"`
	Cause     Cause     `json:"cause"`
	Message   string    `json:"message"`
}

// SharedVolume is one that is not ready.
type SharedVolume struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Target    string    `json:"target"` // the file system, and the access point or path
	Phase     string    `json:"phase"`
	Created   time.Time `json:"created"`
	Level     Level     `json:"level"`
	Cause     Cause     `json:"cause"`
	Message   string    `json:"message"`
}

// Job is a mount Job or sweep Job that runs or has failed.
type Job struct {
	Name       string    `json:"name"`
	FileSystem string    `json:"fileSystem"`
	State      string    `json:"state"`
	Node       string    `json:"node,omitempty"`
	Created    time.Time `json:"created"`
	SetUp      string    `json:"setUp,omitempty"`
	CleanedUp  string    `json:"cleanedUp,omitempty"`
	Message    string    `json:"message,omitempty"`
}

// NewStatus derives the overview from a snapshot.
func NewStatus(s *Snapshot) Status {
	f := derive(s)
	examined := f.examine()
	linkProblems(examined)
	status := Status{
		Namespace: s.Namespace, Provisioner: s.Provisioner, Level: worst(examined),
		Problems: present(of(examined, Problem)), Programs: present(f.programs()), Leader: f.leader(),
		FileSystems: present(f.fileSystems(examined)), Agents: present(f.agents()), Claims: present(f.waitingClaims()),
		Volumes: f.countVolumes(), Jobs: present(f.activeJobs()),
		SharedVolumes: present(f.waitingShared()), SharedVolumeCount: len(f.SharedVolumes),
		Unread: present(reading.Texts(s.Unread)), unread: s.Unread,
	}
	slices.SortStableFunc(status.Problems, func(a, b Result) int { return cmp.Compare(a.layer, b.layer) })
	if len(status.Unread) > 0 && status.Level != Problem {
		status.Level = Unknown
	}
	return status
}

// present returns an empty list in JSON where there is none.
func present[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

func (f *facts) fileSystems(examined []Examined) []FileSystem {
	states := map[string]Cause{}
	for _, r := range slices.Backward(of(examined, Problem)) {
		states[r.part()] = r.Cause
	}
	counts := map[string]int{}
	for _, volume := range f.volumes {
		if volume.Kind != volumes.Root {
			counts[volume.FileSystemID]++
		}
	}
	var all []FileSystem
	for _, id := range slices.Sorted(maps.Keys(f.table.Targets)) {
		target := f.table.Targets[id]
		fs := FileSystem{
			ID: id, Name: target.Name, Port: target.Port, State: string(cmp.Or(states[named(KindFileSystem, id)], "ok")),
			MountTargets: addresses(target), Volumes: counts[id], AccessPoints: map[string]int{},
		}
		if claim := f.rootClaim(id); claim != nil { // it has no annotation before the first sweep
			fs.NextSweep = cmp.Or(claim.Annotations[wellknown.AnnotationNextSweep], "none yet")
		}
		for point, p := range target.AccessPoints {
			fs.AccessPoints[point] = p.Port
		}
		all = append(all, fs)
	}
	return all
}

func addresses(target ports.Target) map[string]string {
	families := []map[string]netip.Addr{target.AddressByZone, target.IPv6ByZone}
	if len(target.Zones()) == 0 {
		families = []map[string]netip.Addr{target.AddressBySubnet, target.IPv6BySubnet}
	}
	texts := map[string]string{}
	for _, by := range families {
		for location, address := range by {
			texts[location] = strings.TrimPrefix(texts[location]+", "+address.String(), ", ")
		}
	}
	return texts
}

func (f *facts) waitingClaims() (all []Claim) {
	claims := keep(f.Claims, f.isUsers)
	for i, r := range f.checkClaims() {
		if c := claims[i]; r.Level != OK {
			all = append(all, Claim{c.Namespace, c.Name, volumes.ClassName(c), c.CreationTimestamp.Time, r.Level, r.Cause, r.Message})
		}
	}
	slices.SortFunc(all, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level), // problem, then note
			a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (f *facts) waitingShared() (all []SharedVolume) {
	for i, r := range f.checkSharedVolumes() {
		if v := f.SharedVolumes[i]; r.Level != OK {
			all = append(all, SharedVolume{
				v.Namespace, v.Name, join(v.Spec.FileSystemID, cmp.Or(v.Spec.AccessPointID, v.Spec.Path)),
				string(v.Status.Phase), v.CreationTimestamp.Time, r.Level, r.Cause, r.Message,
			})
		}
	}
	slices.SortFunc(all, func(a, b SharedVolume) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (f *facts) countVolumes() map[corev1.PersistentVolumePhase]int {
	counts := map[corev1.PersistentVolumePhase]int{}
	for _, volume := range f.volumes {
		if isUserVolume(volume) {
			counts[volume.Object.Status.Phase]++
		}
	}
	return counts
}

// activeJobs run, or are the newest of their file system and have failed.
func (f *facts) activeJobs() (all []Job) {
	for _, j := range f.jobs {
		if f.checkJob(j).Level != OK {
			all = append(all, Job{
				j.job.Name, j.outcome.Name.FileSystemID, cmp.Or(string(j.reason), string(j.outcome.State), "Unreadable"), j.outcome.Node,
				j.job.CreationTimestamp.Time, j.job.Labels[wellknown.LabelSetUp], j.job.Labels[wellknown.LabelCleanedUp],
				cmp.Or(j.message, j.outcome.Message),
			})
		}
	}
	return all
}

// age returns a duration as kubectl has it.
func age(now, then time.Time) string {
	if then.IsZero() {
		return "some time"
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}

// shownRows bounds the agents or claims that a table has before those without a problem are left out.
const shownRows = 12

// Print implements printing.Report.
func (s Status) Print(w *printing.Writer, now time.Time) {
	w.Line("efs-stunnel in namespace %s: %s", s.Namespace, s.Summary())
	writeResults(w, s.Problems)
	if len(s.Unread) > 0 {
		w.Line("\nYou have no right to:\n  %s", strings.Join(s.Unread, "\n  "))
	}
	s.writePrograms(w, now)
	s.writeFileSystems(w, now)
	s.writeAgents(w)
	s.writeWaiting(w, now)
	s.writeJobs(w, now)
	w.Line("\nVolumes: %s", s.VolumesText())
}

// unknown is for what the user has no right to read.
const unknown = "?"

// Known returns text about resources, or a question mark if some of these could not be read.
func (s Status) Known(text string, resources ...string) string {
	if slices.ContainsFunc(resources, s.lacks) {
		return unknown
	}
	return text
}

func (s Status) lacks(resource string) bool { return lacks(s.unread, resource) }

// LeaderText names who leads, and since when that is known.
func (s Status) LeaderText(now time.Time) string {
	switch {
	case s.lacks("leases.coordination.k8s.io"):
		return unknown
	case s.Leader.Renewed == nil || s.Leader.Holder == "":
		return "none"
	case !s.Leader.Leads:
		return fmt.Sprintf("none; %s renewed the Lease %s ago", s.Leader.Holder, age(now, *s.Leader.Renewed))
	}
	return fmt.Sprintf("%s, renewed %s ago", s.Leader.Holder, age(now, *s.Leader.Renewed))
}

func (s Status) writePrograms(w *printing.Writer, now time.Time) {
	rows := [][]string{{"PROGRAM", "VERSION", "READY", "IMAGE"}}
	for _, p := range s.Programs {
		ready := "-"
		if p.Desired > 0 {
			ready = fmt.Sprintf("%d/%d", p.Ready, p.Desired)
		}
		rows = append(rows, []string{p.Name, p.Version, ready, p.Image})
	}
	w.Section("", rows, len(rows))
	w.Line("\nLeader: %s", s.LeaderText(now))
}

func (s Status) writeFileSystems(w *printing.Writer, now time.Time) {
	rows := [][]string{{"FILE SYSTEM", "NAME", "PORT", "STATE", "MOUNT TARGETS", "VOLUMES", "NEXT SWEEP"}}
	for _, fs := range s.FileSystems {
		rows = append(rows, []string{
			fs.ID, fs.Name, strconv.Itoa(fs.Port), fs.State, strings.Join(slices.Sorted(maps.Keys(fs.MountTargets)), ","),
			strconv.Itoa(fs.Volumes), SweepText(fs.NextSweep, now),
		})
		for _, point := range slices.Sorted(maps.Keys(fs.AccessPoints)) {
			rows = append(rows, []string{"  " + point, "", strconv.Itoa(fs.AccessPoints[point])})
		}
	}
	w.Section("", rows, len(rows))
	if len(s.FileSystems) > 0 {
		w.Line("Trash: kubectl efs-stunnel trash list")
	}
}

// SweepText returns a FileSystem's NextSweep for people.
func SweepText(next string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, next)
	switch {
	case next == "":
		return "unknown"
	case err != nil:
		return next // never, none yet
	case !at.After(now):
		return "now"
	}
	return "in " + duration.HumanDuration(at.Sub(now))
}

func (s Status) writeAgents(w *printing.Writer) {
	rows := [][]string{{"NODE", "READY", "VERSION", "TUNNELS", "REASON"}}
	for _, a := range s.Agents {
		why := a.Why // the problems have all of it
		if why == "" && len(a.Tunnels) > 0 {
			why = a.Tunnels[0].Message
		}
		if !a.Healthy() || len(s.Agents) <= shownRows {
			rows = append(rows, []string{a.Node, strconv.FormatBool(a.Ready), a.Version, a.TunnelText(), printing.Short(why)})
		}
	}
	ready := len(keep(s.Agents, func(a Agent) bool { return a.Ready }))
	text := s.Known(fmt.Sprintf("%d of %d nodes are ready", ready, len(s.Agents)), "daemonsets.apps", "pods", "nodes")
	w.Section("Agents: "+text, rows, len(rows))
}

// writeWaiting prints nothing about SharedVolumes if there are none.
func (s Status) writeWaiting(w *printing.Writer, now time.Time) {
	rows := [][]string{{"CLAIM", "CLASS", "AGE", "STATE", "MESSAGE"}}
	for _, c := range s.Claims {
		rows = append(rows, []string{c.Namespace + "/" + c.Name, c.Class, age(now, c.Created), string(c.Cause), printing.Short(c.Message)})
	}
	text := strconv.Itoa(len(s.Claims))
	if s.lacks(claimResource) {
		text += ", of those that you may list"
	}
	w.Section("Waiting claims: "+text, rows, shownRows)
	if s.SharedVolumeCount == 0 {
		return
	}
	rows = [][]string{{"SHAREDVOLUME", "TARGET", "AGE", "STATE", "MESSAGE"}}
	for _, v := range s.SharedVolumes {
		rows = append(rows, []string{v.Namespace + "/" + v.Name, v.Target, age(now, v.Created), string(v.Cause), printing.Short(v.Message)})
	}
	w.Section(fmt.Sprintf("SharedVolumes: %d of %d are ready", s.SharedVolumeCount-len(s.SharedVolumes), s.SharedVolumeCount), rows, shownRows)
}

func (s Status) writeJobs(w *printing.Writer, now time.Time) {
	rows := [][]string{{"JOB", "STATE", "AGE", "NODE", "SET-UP", "CLEANED-UP", "MESSAGE"}}
	for _, j := range s.Jobs {
		rows = append(rows, []string{j.Name, j.State, age(now, j.Created), j.Node, j.SetUp, j.CleanedUp, printing.Short(j.Message)})
	}
	w.Section("Jobs that run or failed: "+s.Known(strconv.Itoa(len(s.Jobs)), "jobs.batch"), rows, len(rows))
}

// VolumesText counts volumes by phase.
func (s Status) VolumesText() string {
	var texts []string
	for _, phase := range slices.Sorted(maps.Keys(s.Volumes)) {
		texts = append(texts, fmt.Sprintf("%d %s", s.Volumes[phase], phase))
	}
	return s.Known(cmp.Or(strings.Join(texts, ", "), "none"), volumeResource)
}
