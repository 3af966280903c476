//go:build integration

package integration_test

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestDirectoriesOfClasses looks at real directories: new ones, and those that were there.
func TestDirectoriesOfClasses(t *testing.T) {
	s := newClaimsWorld(t)
	tests := map[string]struct {
		parameters     map[string]string
		mode, uid, gid uint32
	}{
		"default":     {nil, 0o777, 0, 0},
		"perms":       {map[string]string{"directory_perms": "0750"}, 0o750, 0, 0},
		"special":     {map[string]string{"directory_perms": "3770"}, 0o3770, 0, 0},
		"owner":       {map[string]string{"uid": "1000", "gid": "1001"}, 0o777, 1000, 1001},
		"owner-perms": {map[string]string{"uid": "1000", "directory_perms": "700"}, 0o700, 1000, 0},
		"allocated":   {map[string]string{"gidAllocate": "true"}, 0o2771, 0, wellknown.DefaultGIDMin},
		"allocated-low": {map[string]string{
			"uid": "1000", "gidAllocate": "true", "gidMin": "1000", "gidMax": "1999", "allow_low_gids": "true",
		}, 0o2771, 1000, wellknown.LowestGIDMin},
	}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for name, tt := range tests {
		claims[name] = s.NewClaim(name, s.NewClass(name, tt.parameters).Name)
		there := "/" + s.Team + "/there-" + name
		s.makeDirectory(there, 0o711)
		if err := os.Chown(s.at(there), 42, 43); err != nil {
			t.Fatal(err)
		}
		claims["there-"+name] = s.NewClaim("there-"+name, s.Named(name), called("there-"+name))
	}
	for name, tt := range tests {
		v := s.await(claims[name])
		s.wantShape(v.path, tt.mode, tt.uid, tt.gid)
		s.wantShape(path.Dir(v.path), 0o755, 0, 0)
		s.wantShape(s.await(claims["there-"+name]).path, 0o711, 42, 43)
	}
}

// TestDirectoryWithContent is taken as it is, or refused, as the class says.
func TestDirectoryWithContent(t *testing.T) {
	s := newClaimsWorld(t)
	strict := s.NewClass("strict", map[string]string{"adopt_existing": "false"}).Name
	full, empty := "/"+s.Team+"/full", "/"+s.Team+"/empty"
	for _, there := range []string{full, empty} {
		s.makeDirectory(there, 0o755)
	}
	s.write(full, "data")
	refused := s.NewClaim("refused", strict, called("full"))
	s.awaitTold(refused, wellknown.EventProvisioningFailed, full, "has content and no owner", "adopt_existing", "attempt 1; next at")
	s.bound("welcome", strict, called("empty"))
	v := s.bound("adopted", s.class, called("full"))
	s.wantFile(v.path, "data")
	s.await(refused) // it has an owner of the same namespace now
	s.wantFile(v.path, "data")
}

// allocating has every directory get a group of its own.
func allocating(lowest, highest string) map[string]string {
	return map[string]string{"gidAllocate": "true", "gidMin": lowest, "gidMax": highest}
}

// TestAllocatedGIDs gives directories groups: one each, whoever shares them.
func TestAllocatedGIDs(t *testing.T) {
	s := newClaimsWorld(t)
	class := s.NewClass("allocating", allocating("3000", "3999")).Name
	bound := []boundVolume{s.bound("one", class), s.bound("two", class), s.bound("shared-1", class, called("shared")), s.bound("shared-2", class, called("shared"))}
	for i, want := range []uint32{3000, 3001, 3002, 3002} {
		s.wantShape(bound[i].path, 0o2771, 0, want)
		if got := bound[i].object.Annotations[wellknown.AnnotationGID]; got != fmt.Sprint(want) {
			t.Errorf("volume of claim %s has gid %q, want %d", bound[i].claim.Name, got, want)
		}
	}
	// The group belongs to the directory, also for a class that gives none.
	plain := s.bound("plain", s.class, called("shared"))
	if got := plain.object.Annotations[wellknown.AnnotationGID]; got != "3002" {
		t.Errorf("the volume of a class that allocates nothing has gid %q", got)
	}
}

// TestGIDsRunOut tells the claim that gets none, and serves it when one is free again.
func TestGIDsRunOut(t *testing.T) {
	s := newClaimsWorld(t, sweepingSoon)
	class := s.NewClass("few", allocating("3000", "3001")).Name
	first, second := s.bound("first", class), s.bound("second", class)
	third := s.NewClaim("third", class)
	s.awaitTold(third, wellknown.EventProvisioningFailed, "every gid from 3000 to 3001 is in use", "gidMax")
	s.wantNothingAt(ownDirectory(third))
	s.deleteClaims(first.claim)
	v := s.await(third)
	if got := cmp.Or(v.object.Annotations[wellknown.AnnotationGID], "none"); got != "3000" {
		t.Errorf("the third claim has gid %s, want the free one", got)
	}
	s.wantShape(v.path, 0o2771, 0, 3000)
	s.wantShape(second.path, 0o2771, 0, 3001)
}

// sweepingSoon has the trash emptied soon. Times of Kubernetes are in seconds, so with less than one
// it could not be told which came first, a deletion or a sweep.
func sweepingSoon(options *loops.Options) { options.SweepDelay = time.Second }
