package ports_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// dice is chance: a random source, or the bytes of a fuzz test.
type dice interface {
	IntN(n int) int
}

// oneIn says yes once in n times.
func oneIn(d dice, n int) bool { return d.IntN(n) == n-1 }

func pick[T any](d dice, from []T) T { return from[d.IntN(len(from))] }

// simulation is a cluster, its region and the people who change both.
type simulation struct {
	dice     dice
	cloud    map[string]efs.FileSystem // what really exists
	in       ports.Input
	sequence int
	// lacking counts, apart from the planner's own count, the successive conclusive listings
	// without a file system since the manager started.
	lacking map[string]int
	// foreign are targets that were pinned when they entered the table, and that no listing has
	// shown since.
	foreign map[string]bool
}

func newSimulation(d dice) *simulation {
	s := &simulation{dice: d, cloud: map[string]efs.FileSystem{}, lacking: map[string]int{}, foreign: map[string]bool{}}
	s.in = ports.Input{
		Range: ports.Range{
			Base: 20486, Count: 3 + d.IntN(12), Reserved: []int{20487}, NodePorts: ports.Span{First: 20489, Last: 20489},
		},
		Now: noon, VPCID: "vpc-1", DNSSuffix: "efs.test",
	}
	if oneIn(d, 2) {
		s.in.Table = given(kept{"fs-old": 31000, "fs-1": 20490})
	}
	if s.in.Table != nil && oneIn(d, 2) {
		s.wasPinned("fs-old")
	}
	return s
}

// wasPinned has a target of the table be another account's, which is no longer pinned.
func (s *simulation) wasPinned(id string) {
	target := s.in.Table.Targets[id]
	target.PinnedOnly = true
	s.in.Table.Targets[id] = target
	s.foreign[id] = true
	s.in.Volumes = []ports.Volume{volume("v0", id, target.Port)}
}

// allNames are few, so that they meet again.
func allNames() []string { return strings.Fields("fs-0 fs-1 fs-2 fs-3 fs-4 fs-5 fs-6 fs-7 fs-old") }

func (s *simulation) name() string { return pick(s.dice, allNames()) }

func (s *simulation) key() ports.Key {
	key := ports.Key{FileSystem: s.name()}
	if oneIn(s.dice, 5) {
		key.AccessPoint = fmt.Sprintf("fsap-%d", s.dice.IntN(3))
	}
	return key
}

// port is any in or near the range, and sometimes one that must never be.
func (s *simulation) port() int {
	if oneIn(s.dice, 8) {
		return pick(s.dice, []int{0, 1, 2049, 20487, 20488, 31000, 65535})
	}
	return s.in.Range.Base - 2 + s.dice.IntN(s.in.Range.Count+4)
}

// happen has one random event change the cluster.
func (s *simulation) happen() {
	s.sequence++
	s.in.Now = s.in.Now.Add(time.Minute)
	events := []func(){
		s.createFileSystem, s.createFileSystem, s.alterFileSystem, s.deleteFileSystem,
		s.poll, s.poll, s.poll, s.loseListing,
		s.createVolume, s.createVolume, s.restoreVolume, s.deleteVolume,
		s.pin, s.unpin, s.demand, s.begin, s.restart, s.loseTable,
	}
	pick(s.dice, events)()
}

func (s *simulation) createFileSystem() {
	fs := usable(s.name())
	fs.Tags = map[string]string{"n": fmt.Sprint(s.sequence)}
	s.cloud[fs.ID] = fs
}

func (s *simulation) alterFileSystem() {
	fs, ok := s.cloud[s.name()]
	if !ok {
		return
	}
	states := []efs.LifeCycleState{efs.Available, efs.Updating, efs.Deleting, efs.Error}
	switch s.dice.IntN(4) {
	case 0:
		fs.State = pick(s.dice, states)
	case 1:
		fs.MountTargets = nil
	case 2:
		fs.MountTargets = usable(fs.ID).MountTargets
		fs.MountTargets[0].State = pick(s.dice, states)
	default:
		fs.Name = fmt.Sprint("name ", s.sequence)
	}
	s.cloud[fs.ID] = fs
}

func (s *simulation) deleteFileSystem() { delete(s.cloud, s.name()) }

// poll reads the cloud, often badly.
func (s *simulation) poll() {
	l := efs.Listing{Complete: true, ReadAt: s.in.Now, Source: pick(s.dice, []string{home, home, home, ""})}
	for _, id := range slices.Sorted(maps.Keys(s.cloud)) {
		l.FileSystems = append(l.FileSystems, s.cloud[id])
	}
	switch s.dice.IntN(8) {
	case 0:
		l.Complete = false
		l.FileSystems = l.FileSystems[:len(l.FileSystems)/2]
	case 1:
		l.FileSystems = nil // the wrong region, or no right to see
	case 2:
		if len(l.FileSystems) > 0 {
			fs := &l.FileSystems[0]
			fs.MountTargets = nil
			l.Complete, l.Failed = false, map[string]error{fs.ID: fmt.Errorf("throttled")}
		}
	case 3:
		if len(l.FileSystems) > 1 { // a complete listing that is wrong
			l.FileSystems = l.FileSystems[1:]
		}
	}
	if oneIn(s.dice, 12) { // with another account's credentials
		l = listing("fs-foreign-1", "fs-foreign-2")
		l.ReadAt, l.Source = s.in.Now, "999999999999/us-east-1"
	}
	s.in.Listing = l
	s.count(l)
}

func (s *simulation) count(l efs.Listing) {
	for _, fs := range l.FileSystems {
		delete(s.lacking, fs.ID)
	}
	if !l.Complete || len(l.FileSystems) == 0 {
		return
	}
	for _, id := range allNames() {
		if !slices.ContainsFunc(l.FileSystems, func(fs efs.FileSystem) bool { return fs.ID == id }) {
			s.lacking[id]++
		}
	}
}

func (s *simulation) loseListing() { s.in.Listing = efs.Listing{} }

// createVolume makes one as the manager does, on a port of the table.
func (s *simulation) createVolume() {
	if s.in.Table == nil {
		return
	}
	if keys := s.in.Table.Keys(); len(keys) > 0 {
		key := pick(s.dice, keys)
		port, _ := s.in.Table.Port(key)
		s.addVolume(ports.Volume{On: key, Port: port, Loopback: true, Root: oneIn(s.dice, 4)})
	}
}

// restoreVolume brings one from another cluster, or by hand.
func (s *simulation) restoreVolume() {
	v := ports.Volume{On: s.key(), Port: s.port(), Loopback: !oneIn(s.dice, 6), Root: oneIn(s.dice, 6)}
	switch s.dice.IntN(6) {
	case 0:
		v.On = ports.Key{}
	case 1:
		v.On.FileSystem = "../" + v.On.FileSystem
	}
	s.addVolume(v)
}

func (s *simulation) addVolume(v ports.Volume) {
	v.Name = fmt.Sprintf("v%d", s.sequence)
	s.in.Volumes = append(slices.Clone(s.in.Volumes), v)
}

func (s *simulation) deleteVolume() {
	if n := len(s.in.Volumes); n > 0 {
		i := s.dice.IntN(n)
		s.in.Volumes = slices.Delete(slices.Clone(s.in.Volumes), i, i+1)
	}
}

func (s *simulation) pin() {
	pinned, key := s.in.Pinned.Clone(), s.key()
	target := pinned.Targets[key.FileSystem]
	if key.AccessPoint == "" {
		target.Port = s.port()
	} else {
		target.AccessPoints = map[string]ports.AccessPoint{key.AccessPoint: {Port: s.port()}}
	}
	pinned.Targets[key.FileSystem] = target
	s.in.Pinned = pinned
}

func (s *simulation) unpin() { s.in.Pinned = ports.Table{} }

func (s *simulation) demand() {
	s.in.Demand = ports.Demand{Known: oneIn(s.dice, 2)}
	for range s.dice.IntN(4) {
		s.in.Demand.AccessPoints = append(s.in.Demand.AccessPoints,
			ports.Key{FileSystem: s.name(), AccessPoint: fmt.Sprintf("fsap-%d", s.dice.IntN(3))})
	}
}

// begin has mount Jobs run, and end.
func (s *simulation) begin() {
	s.in.Begun = nil
	for range s.dice.IntN(3) {
		s.in.Begun = append(s.in.Begun, s.name())
	}
}

func (s *simulation) restart() {
	s.in.State = ports.State{}
	s.in.Demand = ports.Demand{}
	s.in.Listing = efs.Listing{}
	s.lacking = map[string]int{}
}

func (s *simulation) loseTable() { s.in.Table = nil }

// answer has the caller ask the API, which sometimes does not answer.
func (s *simulation) answer(confirm []string) {
	s.in.Gone = nil
	for _, id := range confirm {
		if _, exists := s.cloud[id]; !exists && !oneIn(s.dice, 4) {
			s.in.Gone = append(s.in.Gone, id)
		}
	}
}

// accept applies an output, or as much of it as a crash lets through.
func (s *simulation) accept(out ports.Output) {
	after := apply(s.in, out)
	s.in.Gone = nil
	if oneIn(s.dice, 8) {
		return // nothing was written
	}
	s.noteForeign(out.Table)
	s.in.Table, s.in.State = after.Table, after.State
	if !oneIn(s.dice, 8) {
		s.in.Volumes = after.Volumes
	}
}

func (s *simulation) noteForeign(after ports.Table) {
	for _, id := range allNames() {
		_, there := after.Targets[id]
		_, pinned := s.in.Pinned.Targets[id]
		listed := slices.ContainsFunc(s.in.Listing.FileSystems, func(fs efs.FileSystem) bool { return fs.ID == id })
		before := s.in.Table != nil && s.in.Table.Targets[id].Port != 0
		switch {
		case !there, listed, !before && !pinned:
			delete(s.foreign, id)
		case !before:
			s.foreign[id] = true
		}
	}
}
