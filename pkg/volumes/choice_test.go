package volumes_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func candidate(id string, edits ...func(*volumes.Candidate)) volumes.Candidate {
	c := volumes.Candidate{ID: id, Port: 20490}
	for _, edit := range edits {
		edit(&c)
	}
	return c
}

func holds(c *volumes.Candidate)    { c.HoldsPath = true }
func creating(c *volumes.Candidate) { c.Unusable = "it is creating" }
func noPort(c *volumes.Candidate)   { c.Port = 0 }

func tags(tags map[string]string) func(*volumes.Candidate) {
	return func(c *volumes.Candidate) { c.Tags = tags }
}

func zones(zones ...string) func(*volumes.Candidate) {
	return func(c *volumes.Candidate) { c.Zones = zones }
}

func inZoneA(c *volumes.Candidate) { c.OneZone, c.Zones = "a", []string{"a"} }

// TestWaitForExcludedFileSystemSaysWhy: the user of a file system without the tag looks at the claim first.
func TestWaitForExcludedFileSystemSaysWhy(t *testing.T) {
	class := volumes.Class{Name: "efs"}
	excluded := map[string]string{"fs-2": "it lacks the tag a=b", "fs-3": "it lacks the tag a=b"}
	for wanted, want := range map[string]string{
		"fs-3": "file system fs-3 exists, but it lacks the tag a=b",
		"":     `no file system that storage class "efs" allows is in use, and the manager's settings leave out 2, such as fs-2: it lacks the tag a=b`,
	} {
		got, err := volumes.Choose(volumes.Claim{Path: "/a", FileSystemID: wanted}, class, "", nil, excluded)
		if err != nil || !got.Unknown || got.Wait != want {
			t.Errorf("got %+v, %v, want %q", got, err, want)
		}
	}
}

func TestChoose(t *testing.T) {
	type parameters = map[string]string
	type candidates = []volumes.Candidate
	prod := map[string]string{"env": "prod", "team": "a"}
	is := func(id string) volumes.Choice { return volumes.Choice{FileSystemID: id} }
	unknown := func(why string) volumes.Choice { return volumes.Choice{Wait: why, Unknown: true} }
	wait := func(why string) volumes.Choice { return volumes.Choice{Wait: why} }
	back := func(why string) volumes.Choice { return volumes.Choice{GiveNodeBack: why} }
	tests := map[string]struct {
		class      parameters
		allowed    []string // zones of allowedTopologies
		wants      string   // the claim's file_system_id
		zone       string   // of the node of a class that waits for a consumer
		candidates candidates
		want       volumes.Choice
		refuse     string
	}{
		"the only one":                           {candidates: candidates{candidate("fs-1")}, want: is("fs-1")},
		"none is waited for":                     {want: unknown(`no file system that storage class "efs" allows is found yet: are its parameters right, and does the manager look in its account, region and VPC?`)},
		"the claim's request":                    {wants: "fs-2", candidates: candidates{candidate("fs-1"), candidate("fs-2")}, want: is("fs-2")},
		"the claim's request over the default":   {class: parameters{"default_file_system_id": "fs-1"}, wants: "fs-2", candidates: candidates{candidate("fs-1"), candidate("fs-2")}, want: is("fs-2")},
		"the claim's request over what is held":  {wants: "fs-2", candidates: candidates{candidate("fs-1", holds), candidate("fs-2")}, want: is("fs-2")},
		"an unknown request is waited for":       {wants: "fs-9", candidates: candidates{candidate("fs-1")}, want: unknown("file system fs-9 is not found yet: is its ID right, and does the manager look in its account, region and VPC?")},
		"the default":                            {class: parameters{"default_file_system_id": "fs-2"}, candidates: candidates{candidate("fs-1", holds), candidate("fs-2")}, want: is("fs-2")},
		"an unknown default is waited for":       {class: parameters{"default_file_system_id": "fs-9"}, candidates: candidates{candidate("fs-1")}, want: unknown("file system fs-9 is not found yet: is its ID right, and does the manager look in its account, region and VPC?")},
		"a request that is not usable":           {wants: "fs-1", candidates: candidates{candidate("fs-1", creating), candidate("fs-2")}, want: wait("file system fs-1 is not usable: it is creating")},
		"a request without a port":               {wants: "fs-1", candidates: candidates{candidate("fs-1", noPort)}, want: wait("file system fs-1 is not usable: it has no local port yet; the events of ConfigMap efs-stunnel say why")},
		"only those of the list":                 {class: parameters{"file_system_ids": "fs-2,fs-3"}, candidates: candidates{candidate("fs-1", holds), candidate("fs-2")}, want: is("fs-2")},
		"none of the list":                       {class: parameters{"file_system_ids": "fs-3"}, candidates: candidates{candidate("fs-1")}, want: unknown(`no file system that storage class "efs" allows is found yet: are its parameters right, and does the manager look in its account, region and VPC?`)},
		"only those with all tags":               {class: parameters{"file_system_tags": "env=prod,team=a"}, candidates: candidates{candidate("fs-1", tags(map[string]string{"env": "prod"})), candidate("fs-2", tags(prod))}, want: is("fs-2")},
		"none with the tags":                     {class: parameters{"file_system_tags": "env=prod"}, candidates: candidates{candidate("fs-1")}, want: unknown(`no file system that storage class "efs" allows is found yet: are its parameters right, and does the manager look in its account, region and VPC?`)},
		"a request without the tags":             {class: parameters{"file_system_tags": "env=prod,team=a"}, wants: "fs-1", candidates: candidates{candidate("fs-1")}, refuse: `file system fs-1 lacks the tags that storage class "efs" asks for: "env=prod,team=a"`},
		"the one that holds the path":            {candidates: candidates{candidate("fs-1"), candidate("fs-2"), candidate("fs-3", holds)}, want: is("fs-3")},
		"one that holds the path and is usable":  {candidates: candidates{candidate("fs-1", holds, creating), candidate("fs-2", holds)}, want: is("fs-2")},
		"the one that holds it, though unusable": {candidates: candidates{candidate("fs-1"), candidate("fs-2", holds, creating)}, want: wait("file system fs-2 is not usable: it is creating")},
		"usable ones only":                       {candidates: candidates{candidate("fs-1", creating), candidate("fs-2"), candidate("fs-3", noPort)}, want: is("fs-2")},
		"no usable one":                          {candidates: candidates{candidate("fs-2", noPort), candidate("fs-1", creating)}, want: wait("file system fs-1 is not usable: it is creating; file system fs-2 is not usable: it has no local port yet; the events of ConfigMap efs-stunnel say why")},

		"one in the node's zone":                     {zone: "b", candidates: candidates{candidate("fs-1", inZoneA), candidate("fs-2", zones("a", "b"))}, want: is("fs-2")},
		"one whose zones are unknown":                {zone: "b", candidates: candidates{candidate("fs-1")}, want: is("fs-1")},
		"none in the node's zone":                    {zone: "b", candidates: candidates{candidate("fs-1", inZoneA), candidate("fs-2", zones("c"))}, want: back(`file systems fs-1, fs-2 are without a mount target in zone "b", where node n1 is`)},
		"a request that is not in the node's zone":   {zone: "b", wants: "fs-1", candidates: candidates{candidate("fs-1", inZoneA), candidate("fs-2", zones("b"))}, want: back(`file system fs-1 is without a mount target in zone "b", where node n1 is`)},
		"the held path is in another zone":           {zone: "b", candidates: candidates{candidate("fs-1", holds, inZoneA), candidate("fs-2", zones("b"))}, want: back(`file system fs-1 is without a mount target in zone "b", where node n1 is`)},
		"a node's zone that the class forbids":       {zone: "b", allowed: []string{"a"}, candidates: candidates{candidate("fs-1", zones("a"))}, want: back(`file system fs-1 is without a mount target in zone "b", where node n1 is`)},
		"the right zone is not usable yet":           {zone: "b", candidates: candidates{candidate("fs-1", zones("a")), candidate("fs-2", zones("b"), creating)}, want: wait("file system fs-2 is not usable: it is creating")},
		"one in the zones of the class":              {allowed: []string{"b", "c"}, candidates: candidates{candidate("fs-1", zones("a")), candidate("fs-2", zones("c"))}, want: is("fs-2")},
		"none in the zones of the class":             {allowed: []string{"b", "c"}, candidates: candidates{candidate("fs-1", zones("a"))}, refuse: `file system fs-1 is without a mount target in zones "b, c", where storage class "efs" allows volumes`},
		"a request outside of the class's zones":     {allowed: []string{"b"}, wants: "fs-1", candidates: candidates{candidate("fs-1", inZoneA), candidate("fs-2", zones("b"))}, refuse: `file system fs-1 is without a mount target in zone "b", where storage class "efs" allows volumes`},
		"One Zone without affinity":                  {candidates: candidates{candidate("fs-1", inZoneA)}, want: is("fs-1")},
		"One Zone with affinity":                     {class: parameters{"enforce_zone_affinity": "true"}, candidates: candidates{candidate("fs-1", inZoneA)}, want: volumes.Choice{FileSystemID: "fs-1", Zone: "a"}},
		"a file system of all zones has no affinity": {class: parameters{"enforce_zone_affinity": "true"}, candidates: candidates{candidate("fs-1", zones("a", "b"))}, want: is("fs-1")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			class := parseClass(t, newClass(tt.class, func(c *storagev1.StorageClass) {
				if tt.allowed != nil {
					c.AllowedTopologies = topologies("topology.kubernetes.io/zone", tt.allowed...)
				}
			}))
			claim := parseClaim(t, newClaim(), class)
			claim.FileSystemID = tt.wants
			if tt.zone != "" {
				claim.Node = "n1"
			}
			got, err := volumes.Choose(claim, class, tt.zone, tt.candidates, nil)
			wantRefusal(t, err, tt.refuse)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("choice mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// A hash of the new path says nothing about where the old directory went to the trash.
func TestChooseDoesNotGuessWhereToRestore(t *testing.T) {
	class := parseClass(t, newClass(nil))
	claim := parseClaim(t, newClaim(annotated("efs-stunnel.gnuthought.com/restore", "old")), class)
	both := []volumes.Candidate{candidate("fs-2"), candidate("fs-1")}
	_, err := volumes.Choose(claim, class, "", both, nil)
	wantRefusal(t, err, `file systems fs-1, fs-2 could have the directory of claim old: add the label file_system_id with the right one to spec.selector.matchLabels`)
	both[0].HoldsPath = true
	if got, err := volumes.Choose(claim, class, "", both, nil); err != nil || got.FileSystemID != "fs-2" {
		t.Errorf("got %+v, %v", got, err)
	}
	claim.FileSystemID, both[0].HoldsPath = "fs-1", false
	if got, err := volumes.Choose(claim, class, "", both, nil); err != nil || got.FileSystemID != "fs-1" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A class that binds at once has no node, whatever zone is passed.
func TestChooseIgnoresZonesWithoutANode(t *testing.T) {
	class := parseClass(t, newClass(nil))
	got, err := volumes.Choose(parseClaim(t, newClaim(), class), class, "b", []volumes.Candidate{candidate("fs-1", inZoneA)}, nil)
	if err != nil || got.FileSystemID != "fs-1" {
		t.Errorf("got %+v, %v", got, err)
	}
}
