package enginetest

import (
	"os"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
)

func (w *fixture) adopt(adoption requests.Adoption) ([]requests.Adopted, error) {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	var all []requests.Adopted
	err := batch.AdoptVolumes(w.t.Context(), f, adoption, w.options(), func(a requests.Adopted) error {
		all = append(all, a)
		return nil
	})
	return all, err
}

func TestAdoptionOfVolumes(t *testing.T) {
	w := newFixture(t)
	w.done(setupOf(owner("c1", "ns", 1), "/taken"))
	w.write("/legacy/a/file", "x")
	w.write("/legacy/file", "x")
	w.link("../taken", "/legacy/link")
	if err := os.Chown(w.path("/legacy/a"), 0, 4711); err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	}
	volume := func(name, p string) requests.Volume {
		return requests.Volume{Name: name, Path: p, Namespace: "other", Claim: name, ClaimUID: "u-" + name, Class: "efs"}
	}
	a := volume("a", "/legacy/a")
	a.Made = true
	adopted, err := w.adopt(requests.Adoption{Cluster: "c1", Volumes: []requests.Volume{
		a, volume("b", "/legacy/b"), volume("c", "/legacy/file"), volume("d", "/legacy/link"), volume("e", "/taken"), volume("f", "/taken/inside"),
		volume("g", "/legacy/a/.."), volume("h", "/legacy"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	wants := []string{"", "is not there", "is not a directory", "symbolic link", "belongs to volume", "one inside the other", "component ..", "one inside the other"}
	for i, want := range wants {
		if got := adopted[i].Problem; (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", adopted[i].Path, got, want)
		}
	}
	if e := w.entry("/legacy/a", "a"); e["made"] != true || e["claim"] != "a" || e["takenFrom"] != nil {
		t.Error(e)
	}
	before := w.dump()
	if again, err := w.adopt(requests.Adoption{Cluster: "c1", Volumes: []requests.Volume{a}}); err != nil || again[0].Problem != "" {
		t.Errorf("%+v, %v", again, err)
	}
	if diff := difference(before, w.dump()); diff != "" {
		t.Errorf("a second run has changed something:\n%s", diff)
	}
}

// TestAdoptionKeepsTheGroupOfADirectory: it is recorded, so that no other directory gets it.
func TestAdoptionKeepsTheGroupOfADirectory(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	w.write("/legacy/a/file", "x")
	op := allocating(setupOf(owner("c1", "ns", 1), "/ns/new"))
	gid := firstGID(t, op)
	if err := os.Chown(w.path("/legacy/a"), 0, gid); err != nil {
		t.Fatal(err)
	}
	v := requests.Volume{Name: "a", Path: "/legacy/a", Namespace: "ns", Claim: "a", ClaimUID: "u", GID: gid}
	if adopted, err := w.adopt(requests.Adoption{Cluster: "c1", Volumes: []requests.Volume{v}}); err != nil || adopted[0].Problem != "" {
		t.Fatal(adopted, err)
	}
	if other := w.gidsOf(op)[0]; other == gid {
		t.Errorf("a new directory gets gid %d", other)
	}
}

func TestAdoptionOfALivingCluster(t *testing.T) {
	lost := lostVolume()
	w := newFixture(t)
	w.done(setupOf(lost, "/ns/lost"))
	w.age(requests.FreshMark - time.Minute)
	adoption := requests.Adoption{Cluster: "c1", Lost: &requests.Lost{Cluster: "c2"}, Volumes: []requests.Volume{
		{Name: lost.Volume, Path: "/ns/lost", Namespace: "ns", Claim: lost.Claim, ClaimUID: lost.ClaimUID},
	}}
	if adopted, err := w.adopt(adoption); err == nil || !strings.Contains(err.Error(), "seems to live") || len(adopted) > 0 {
		t.Errorf("%+v, %v", adopted, err)
	}
	adoption.Lost.Force = true
	if adopted, err := w.adopt(adoption); err != nil || adopted[0].Problem != "" {
		t.Errorf("forced: %+v, %v", adopted, err)
	}
}
