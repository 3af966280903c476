package sharedvolumes

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func TestRefusals(t *testing.T) {
	trusted := Paths{"team"}
	tests := map[string]struct {
		paths  Paths
		object *v1alpha1.SharedVolume
		want   string // a part, "" for no refusal
	}{
		"an access point":                    {nil, shared("team", "a"), ""},
		"a path where paths are allowed":     {trusted, shared("team", "a", ofPath("/a")), ""},
		"a path where all may":               {Paths{AnyNamespace}, shared("other", "a", ofPath("/a")), ""},
		"a path where none may":              {nil, shared("team", "a", ofPath("/a")), "not allowed in namespace team by the manager's setting --shared-volume-paths"},
		"a path in another namespace":        {trusted, shared("team-2", "a", ofPath("/a")), "not allowed in namespace team-2"},
		"a path upwards":                     {trusted, shared("team", "a", ofPath("/a/../../b")), "has the component .."},
		"the root":                           {trusted, shared("team", "a", ofPath("/")), "the whole file system"},
		"the ledger":                         {trusted, shared("team", "a", ofPath("/.efs-stunnel")), "where no volume may be"},
		"a path that is none":                {trusted, shared("team", "a", ofPath("a")), "does not start with /"},
		"a line":                             {trusted, shared("team", "a", ofPath("/a\nb")), "control character"},
		"neither":                            {trusted, shared("team", "a", ofPath("")), "spec.accessPointID is missing"},
		"both":                               {trusted, shared("team", "a", func(o *v1alpha1.SharedVolume) { o.Spec.Path = "/a" }), "leave it out"},
		"a file system that cannot be":       {trusted, shared("team", "a", func(o *v1alpha1.SharedVolume) { o.Spec.FileSystemID = "fs-1,port=1" }), "spec.fileSystemID"},
		"an access point that cannot be":     {trusted, shared("team", "a", func(o *v1alpha1.SharedVolume) { o.Spec.AccessPointID = "fsap-1 x" }), "spec.accessPointID"},
		"a name that just fits":              {trusted, shared(strings.Repeat("n", 63), strings.Repeat("a", 186)), ""},
		"a name that does not":               {trusted, shared(strings.Repeat("n", 63), strings.Repeat("a", 187)), "254 characters, more than 253"},
		"a claim's name that does not":       {trusted, shared("n", strings.Repeat("a", 250)), "the name is too long"},
		"another kind of file system's path": {trusted, shared("team", "a", ofPath("/a"), func(o *v1alpha1.SharedVolume) { o.Spec.FileSystemID = "nas" }), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.paths.refusal(tt.object)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDemand(t *testing.T) {
	iam := func(o *v1alpha1.SharedVolume) { o.Spec.IAM = true }
	second := func(o *v1alpha1.SharedVolume) { o.Spec.AccessPointID = "fsap-2" }
	going := shared("d", "going", func(o *v1alpha1.SharedVolume) { o.Spec.AccessPointID = "fsap-3" })
	deleted(going)
	got := Demand([]*v1alpha1.SharedVolume{
		shared("b", "two", second), shared("a", "one"), shared("c", "one", iam), going,
		shared("team", "path", ofPath("/a"), iam), shared("other", "refused", ofPath("/a"), iam),
		shared("other", "bad", func(o *v1alpha1.SharedVolume) { o.Spec.AccessPointID = "x" }),
	}, true, Paths{"team"})
	key := func(id string) ports.Key { return ports.Key{FileSystem: "fs-1", AccessPoint: id} }
	want := ports.Demand{
		Known: true, AccessPoints: []ports.Key{key("fsap-1"), key("fsap-2"), key("fsap-3")}, IAM: []ports.Key{key(""), key("fsap-1")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("demand mismatch (-want +got):\n%s", diff)
	}
	if got := Demand(nil, false, nil); got.Known {
		t.Error("known before the first list")
	}
}

// TestNamesForVolume: however many objects there are, each hyphen of a volume's name costs one lookup.
func TestNamesForVolume(t *testing.T) {
	objects := map[string]bool{"team/data": true, "team-a/data": true, "team/a-data": true, "other/data": true}
	for volume, want := range map[string][]string{
		volumeName(shared("team", "data")):   {"team/data"},
		volumeName(shared("team", "a-data")): {"team/a-data", "team-a/data"},
		volumeName(shared("none", "data")):   nil,
		"team-data":                          nil,
		"pv-":                                nil,
	} {
		asked := 0
		got := namesFor(volume, func(namespaced string) bool {
			asked++
			return objects[namespaced]
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: names mismatch (-want +got):\n%s", volume, diff)
		}
		if asked > strings.Count(volume, "-") {
			t.Errorf("%s: %d objects are asked for", volume, asked)
		}
	}
}
