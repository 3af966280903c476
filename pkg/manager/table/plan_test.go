package table

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func TestPlan(t *testing.T) {
	shared := tableOf(map[string]ports.Target{"fs-1": target(20490)})
	created := []string{"fs-1: create volume"}
	tests := map[string]struct {
		given fixture
		want  outline
	}{
		"a first file system gets a port, a root volume and a root claim": {
			given(nil, polled(found(listing(1, fileSystem("fs-1", "a"))))),
			outline{Write: true, Ports: map[string]int{"fs-1": 20490}, Roots: created, Events: []string{"FileSystemFound"}},
		},
		"a lost table waits for the first poll": {
			given(nil, polled(inventory{}), with(claimed("v", "fs-1", 20493))),
			outline{Held: true},
		},
		"a lost table is rebuilt from volumes even if that poll fails": {
			given(nil, polled(inventory{polled: true, failure: errBoom}), with(claimed("v", "fs-1", 20493))),
			outline{Write: true, Ports: map[string]int{"fs-1": 20493}, Roots: created, Events: []string{"FileSystemFound", "DiscoveryFailed"}},
		},
		"a lost table waits for the pinned one to be readable": {
			given(nil, pinned(document{err: errBoom})),
			outline{Held: true, Events: []string{"TableUnreadable"}},
		},
		"an unreadable table stops everything": {
			given(shared, func(s *fixture) { s.table.table, s.table.err = nil, errBoom }, with(claimed("v", "fs-1", 20499))),
			outline{Held: true, Events: []string{"TableUnreadable"}},
		},
		"a repaired root volume does not wait for the poll": {
			given(shared, polled(inventory{})),
			outline{Ports: map[string]int{"fs-1": 20490}, Roots: created},
		},
		"a table that is as it should be is not written": {
			given(shared, rooted(map[string]int{"fs-1": 20490})),
			outline{Ports: map[string]int{"fs-1": 20490}},
		},
		"with a pinned table that could never be read, no port is given, moved or taken": {
			given(shared, pinned(document{err: errBoom}), polled(found(listing(1, fileSystem("fs-2", "a")))),
				with(claimed("v", "fs-1", 20499)), rooted(map[string]int{"fs-3": 20492})),
			outline{Ports: map[string]int{"fs-1": 20490}, Roots: created, Events: []string{"TableUnreadable"}},
		},
		"with the last good pinned table, work goes on": {
			given(shared, pinned(document{err: errBoom, table: tableOf(map[string]ports.Target{"server": {Port: 20491}})}),
				polled(found(listing(1, fileSystem("fs-1", "a"), fileSystem("fs-2", "a")))), rooted(map[string]int{"fs-1": 20490, "server": 20491})),
			outline{
				Write: true, Ports: map[string]int{"fs-1": 20490, "server": 20491, "fs-2": 20492},
				Roots:  []string{"fs-2: create volume"},
				Events: []string{"FileSystemFound", "FileSystemFound", "TableUnreadable"},
			},
		},
		"a volume's port follows the table": {
			given(shared, with(claimed("v", "fs-1", 20499)), rooted(map[string]int{"fs-1": 20490})),
			outline{Write: true, Ports: map[string]int{"fs-1": 20490}, Corrections: []string{"v: 20499 -> 20490"}},
		},
		"a root volume's port is repaired with the rest of it": {
			given(tableOf(map[string]ports.Target{"fs-1": target(20490), "fs-2": target(20491)}), rooted(map[string]int{"fs-1": 20491, "fs-2": 20491})),
			outline{Ports: map[string]int{"fs-1": 20490, "fs-2": 20491}, Roots: []string{"fs-1: update volume"}},
		},
		"an unreadable file system leaves the others alone": {
			given(shared, rooted(map[string]int{"fs-1": 20490}), polled(inventory{
				polled: true, succeeded: noon,
				listing: efs.Listing{
					FileSystems: []efs.FileSystem{fileSystem("fs-1"), fileSystem("fs-2", "a")},
					Failed:      map[string]error{"fs-1": errBoom}, ReadAt: noon,
				},
			})),
			outline{
				Write: true, Ports: map[string]int{"fs-1": 20490, "fs-2": 20491},
				Roots: []string{"fs-2: create volume"}, Events: []string{"FileSystemFound", "DiscoveryFailed"},
			},
		},
		"an empty listing is reported, and removes nothing": {
			given(shared, rooted(map[string]int{"fs-1": 20490}), polled(found(listing(1)))),
			outline{Ports: map[string]int{"fs-1": 20490}, Events: []string{"DiscoveryFailed"}},
		},
		"a target that left takes its claim along": {
			given(shared, rooted(map[string]int{"fs-1": 20490, "fs-9": 20499}), usedJob("fs-9")),
			outline{Ports: map[string]int{"fs-1": 20490}, Roots: []string{"fs-9: delete claim, after its jobs"}},
		},
		"and then its volume": {
			given(shared, rooted(map[string]int{"fs-1": 20490, "fs-9": 20499}), func(s *fixture) { delete(s.claims, "efs-stunnel-fs-9") }),
			outline{Ports: map[string]int{"fs-1": 20490}, Roots: []string{"fs-9: delete volume"}},
		},
		"a root claim that is being deleted is let go by its Jobs": {
			given(shared, rooted(map[string]int{"fs-1": 20490}), usedJob("fs-1"), func(s *fixture) {
				s.claims["efs-stunnel-fs-1"].DeletionTimestamp = &metav1.Time{Time: noon}
			}),
			outline{Ports: map[string]int{"fs-1": 20490}, Roots: []string{"fs-1: after its jobs"}},
		},
		"what another installation has is left alone": {
			given(tableOf(map[string]ports.Target{"fs-1": target(20490), "fs-2": target(20491)}), with(otherRoot(corev1.VolumeBound)),
				with(claimed("v", "fs-1", 20499)), with(claimed("w", "fs-2", 20498))),
			outline{
				Write: true, Ports: map[string]int{"fs-1": 20490, "fs-2": 20491}, Roots: []string{"fs-2: create volume"},
				Corrections: []string{"w: 20498 -> 20491"}, Events: []string{"RootVolumeConflict"},
			},
		},
		"what it has left is looked at live": {
			given(shared, with(otherRoot(corev1.VolumeReleased))),
			outline{Ports: map[string]int{"fs-1": 20490}, Roots: []string{"fs-1:"}, Events: []string{"RootVolumeConflict"}},
		},
		"another owner's volume of a root volume's name is left alone": {
			given(shared, with(func() *corev1.PersistentVolume {
				v := claimed("efs-stunnel-fs-1", "", 0)
				v.Spec.StorageClassName = "nfs"
				return v
			}())),
			outline{Ports: map[string]int{"fs-1": 20490}, Events: []string{"RootVolumeConflict"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, outlineOf(tt.given.plan(options())), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("plan mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// Once a plan is applied, nothing is left to write or to report.
func TestAppliedPlansAreDone(t *testing.T) {
	s := given(nil, polled(found(listing(1, fileSystem("fs-1", "a"), fileSystem("fs-2", "a", "b")))),
		with(claimed("v", "fs-1", 20495)), with(claimed("w", "fs-1", 20494)), with(claimed("x", "fs-1", 20495)))
	p := s.plan(options())
	if !p.write || len(p.ports) != 1 || len(p.roots) != 2 {
		t.Fatalf("unexpected plan: %+v", outlineOf(p))
	}
	s = applied(s, p)
	again := s.plan(options())
	if diff := cmp.Diff(outline{Ports: map[string]int{"fs-1": 20495, "fs-2": 20490}}, outlineOf(again), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the second plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(p.snapshot, again.snapshot); diff != "" {
		t.Errorf("the snapshot changed (-first +second):\n%s", diff)
	}
}

// applied plays apply, and the binder.
func applied(s fixture, p plans) fixture {
	s.table = document{object: tableMap(&p.table), table: &p.table}
	s.memory = p.memory
	for _, w := range p.ports {
		for i, v := range s.volumes {
			if v.Name == w.is.Name {
				s.volumes[i] = w.want
			}
		}
	}
	ids := map[string]int{}
	for _, w := range p.roots {
		ids[w.FileSystemID] = w.Port
	}
	rooted(ids)(&s)
	return s
}

// otherRoot is the root volume of fs-1 of an installation in namespace elsewhere.
func otherRoot(phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	v, _ := volumes.RootObjects("fs-1", 20490, "elsewhere")
	v.Status.Phase = phase
	return v
}

func polled(f inventory) func(*fixture) { return func(s *fixture) { s.inventory = f } }

func with(v *corev1.PersistentVolume) func(*fixture) {
	return func(s *fixture) { s.volumes = append(s.volumes, v) }
}

func pinned(d document) func(*fixture) { return func(s *fixture) { s.pinned = d } }

func usedJob(id string) func(*fixture) {
	return func(s *fixture) { s.jobs = map[string][]*batchv1.Job{id: {{}}} }
}

// A file system leaves only after three listings without it, the API's confirmation, and its last
// volume.
func TestAFileSystemLeaves(t *testing.T) {
	o, rest := options(), fileSystem("fs-2", "a")
	s := given(tableOf(map[string]ports.Target{"fs-1": target(20490), "fs-2": target(20491)}), rooted(map[string]int{"fs-1": 20490, "fs-2": 20491}))
	var p plans
	for at := 1; at <= 3; at++ {
		if s.inventory = found(listing(at, rest)); len(p.missing) > 0 {
			t.Fatalf("asked after %d listings", at-1)
		}
		p = s.plan(o)
		s = applied(s, p)
	}
	if diff := cmp.Diff([]string{"fs-1"}, p.missing); diff != "" {
		t.Fatalf("asked for (-want +got):\n%s", diff)
	}
	s.inventory.existence = map[string]existence{"fs-1": {listing: s.inventory.listing.ReadAt, err: errBoom}}
	if p = s.plan(o); p.missing != nil || len(p.snapshot.Gone) > 0 || p.table.Targets["fs-1"].Port != 20490 {
		t.Fatalf("after an error: %+v", outlineOf(p))
	}
	s.inventory.existence["fs-1"] = existence{listing: s.inventory.listing.ReadAt, gone: true}
	with(claimed("v", "fs-1", 20490))(&s)
	if p = s.plan(o); !p.snapshot.Gone["fs-1"] || p.table.Targets["fs-1"].Port != 20490 || p.snapshot.FileSystems["fs-1"].Unusable == "" {
		t.Fatalf("with a volume: %+v", outlineOf(p))
	}
	s.volumes = s.volumes[:len(s.volumes)-1]
	p = s.plan(o)
	want := outline{
		Write: true, Ports: map[string]int{"fs-2": 20491}, Roots: []string{"fs-1: delete claim"}, Events: []string{"FileSystemGone"},
	}
	if diff := cmp.Diff(want, outlineOf(p), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("plan mismatch (-want +got):\n%s", diff)
	}
}

// A file system that left the table stays known as gone while mount Jobs remember it, as long as
// neither the table may be lost nor the listing be old or incomplete.
func TestGoneIsRememberedByJobs(t *testing.T) {
	table := tableOf(map[string]ports.Target{"fs-2": target(20491)})
	rest := listing(1, fileSystem("fs-2", "a"))
	partial, failing := rest, found(rest)
	partial.Complete, failing.failure = false, errBoom
	begun := func(s *fixture) { s.begun = map[string]bool{"fs-1": true, "fs-2": true} }
	for name, c := range map[string]struct {
		given fixture
		edit  func(*Options)
		gone  bool
	}{
		"in neither table nor listing":    {given(table, begun, polled(found(rest))), nil, true},
		"no Job remembers it":             {given(table, polled(found(rest))), nil, false},
		"before the first poll is over":   {given(table, begun, polled(inventory{})), nil, false},
		"after a first poll that failed":  {given(table, begun, polled(inventory{polled: true, failure: errBoom})), nil, false},
		"a later poll failed":             {given(table, begun, polled(failing)), nil, false},
		"a part of the listing is lost":   {given(table, begun, polled(found(partial))), nil, false},
		"the listing is empty":            {given(table, begun, polled(found(listing(1)))), nil, false},
		"no API":                          {given(table, begun), nil, false},
		"listed":                          {given(table, begun, polled(found(listing(1, fileSystem("fs-1"), fileSystem("fs-2", "a"))))), nil, false},
		"pinned":                          {given(table, begun, polled(found(rest)), pinned(document{table: tableOf(map[string]ports.Target{"fs-1": {}})})), nil, false},
		"the pinned table was never read": {given(table, begun, polled(found(rest)), pinned(document{err: errBoom})), nil, false},
		"a lost table, and a root volume": {given(nil, begun, polled(found(rest)), rooted(map[string]int{"fs-1": 20490})), nil, false},
		"in the table, and filtered out": {
			given(tableOf(map[string]ports.Target{"fs-1": target(20490), "fs-2": target(20491)}), begun, polled(found(rest))),
			func(o *Options) { o.Filter = efs.Filter{IDs: []string{"fs-2"}} }, false,
		},
	} {
		o := options()
		if c.edit != nil {
			c.edit(&o)
		}
		snapshot := c.given.plan(o).snapshot
		if snapshot.Gone["fs-1"] != c.gone || snapshot.Gone["fs-2"] {
			t.Errorf("%s: gone are %v", name, snapshot.Gone)
		}
	}
}

// TestUnpinnedFileSystemStays has a file system of another account unpinned while a Job remembers it.
func TestUnpinnedFileSystemStays(t *testing.T) {
	o, unpinned := options(), target(20490)
	unpinned.PinnedOnly = true
	s := given(tableOf(map[string]ports.Target{"fs-1": unpinned, "fs-2": target(20491)}), func(s *fixture) { s.begun = map[string]bool{"fs-1": true} })
	var p plans
	for at := 1; at <= 5; at++ {
		s.inventory = found(listing(at, fileSystem("fs-2", "a")))
		s.inventory.existence = map[string]existence{"fs-1": {listing: s.inventory.listing.ReadAt, gone: true}}
		p = s.plan(o)
		s = applied(s, p)
	}
	if len(p.snapshot.Gone) > 0 || p.table.Targets["fs-1"].Port != 20490 || p.snapshot.FileSystems["fs-1"].Unusable == "" {
		t.Errorf("a Job remembers it: %+v, gone are %v", outlineOf(p), p.snapshot.Gone)
	}
	s.begun = nil
	if p = s.plan(o); p.table.Targets["fs-1"].Port != 0 {
		t.Errorf("nothing is on it: %+v", outlineOf(p))
	}
}

// An old annotation has the mount options where kubelet looks first.
func TestPortInTheOldAnnotation(t *testing.T) {
	v := claimed("v", "fs-1", 20499)
	v.Annotations[corev1.MountOptionAnnotation] = "hard,port=20490"
	s := given(tableOf(map[string]ports.Target{"fs-1": target(20490)}), rooted(map[string]int{"fs-1": 20490}), with(v))
	if p := s.plan(options()); len(p.ports) > 0 {
		t.Errorf("corrects %+v", outlineOf(p))
	}
	v.Annotations[corev1.MountOptionAnnotation] = "hard,port=20498"
	p := s.plan(options())
	if len(p.ports) != 1 || p.ports[0].want.Annotations[corev1.MountOptionAnnotation] != "hard,port=20490" {
		t.Errorf("got %+v", outlineOf(p))
	}
}

// What a second installation in the cluster has, and what only looks alike, is not removed.
func TestRemovalIsNarrow(t *testing.T) {
	other, _ := volumes.RootObjects("fs-8", 20498, "elsewhere")
	alike := claimed("efs-stunnel-data", "", 0)
	s := given(tableOf(map[string]ports.Target{}), with(other), with(alike))
	class := "gp3"
	s.claims["efs-stunnel-cache"] = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "efs-stunnel-cache"},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
	}
	if p := s.plan(options()); len(p.roots) > 0 || len(p.notices)+len(p.conflicts) > 0 {
		t.Errorf("got %+v", outlineOf(p))
	}
}
