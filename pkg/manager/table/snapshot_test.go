package table

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func TestSnapshot(t *testing.T) {
	tags := map[string]string{"team": "a"}
	failed := listing(1, fileSystem("fs-1"))
	failed.Failed, failed.Complete = map[string]error{"fs-1": errBoom}, false
	tests := map[string]struct {
		given fixture
		edit  func(*Options)
		want  targets.Snapshot
	}{
		"before the first poll is over, nothing may be chosen": {
			given: given(tableOf(map[string]ports.Target{"fs-1": target(20490)}), polled(inventory{})),
			want: targets.Snapshot{FileSystems: map[string]volumes.Candidate{
				"fs-1": {ID: "fs-1", Port: 20490, Zones: []string{"a"}},
			}},
		},
		"after one that failed, the table is what is known": {
			given: given(tableOf(map[string]ports.Target{"fs-1": target(20490)}), polled(inventory{polled: true, failure: errBoom})),
			want: targets.Snapshot{Known: true, Unanswered: true, FileSystems: map[string]volumes.Candidate{
				"fs-1": {ID: "fs-1", Port: 20490, Zones: []string{"a"}},
			}},
		},
		"a listing knows tags, and the zones that serve": {
			given: given(tableOf(map[string]ports.Target{"fs-1": target(20490)}), polled(found(listing(1, func() efs.FileSystem {
				fs := fileSystem("fs-1", "b", "a", "c")
				fs.MountTargets[2].State, fs.AvailabilityZone = efs.Deleting, "b"
				return fs
			}())))),
			want: targets.Snapshot{Known: true, Listed: true, FileSystems: map[string]volumes.Candidate{
				"fs-1": {ID: "fs-1", Port: 20490, Tags: tags, OneZone: "b", Zones: []string{"a", "b"}},
			}},
		},
		"what cannot serve is there, with the reason": {
			given: given(tableOf(map[string]ports.Target{}), polled(found(listing(1, fileSystem("fs-1"))))),
			want: targets.Snapshot{Known: true, Listed: true, FileSystems: map[string]volumes.Candidate{
				"fs-1": {ID: "fs-1", Tags: tags, Unusable: "the file system has no mount target"},
			}},
		},
		"mount targets that cannot be read now are as they were": {
			given: given(tableOf(map[string]ports.Target{"fs-1": target(20490)}), polled(found(failed)), func(s *fixture) {
				s.seen = map[string]efs.FileSystem{"fs-1": fileSystem("fs-1", "d")}
			}),
			want: targets.Snapshot{Known: true, Listed: true, FileSystems: map[string]volumes.Candidate{
				"fs-1": {ID: "fs-1", Port: 20490, Tags: tags, Zones: []string{"d"}},
			}},
		},
		"mount targets that could never be read": {
			given: given(tableOf(map[string]ports.Target{}), polled(found(failed))),
			want: targets.Snapshot{Known: true, Listed: true, FileSystems: map[string]volumes.Candidate{
				"fs-1": {ID: "fs-1", Tags: tags, Unusable: "its mount targets could not be read"},
			}},
		},
		"a missing one keeps tags and zones, and gets nothing new": {
			given: given(tableOf(map[string]ports.Target{"fs-1": func() ports.Target {
				t := target(20490)
				t.NotFoundSince = noon
				return t
			}()}), func(s *fixture) { s.seen = map[string]efs.FileSystem{"fs-1": fileSystem("fs-1", "a")} }),
			want: targets.Snapshot{Known: true, FileSystems: map[string]volumes.Candidate{
				"fs-1": {ID: "fs-1", Port: 20490, Tags: tags, Zones: []string{"a"}, Unusable: "the EFS API does not list it since 2026-01-02T12:00:00Z"},
			}},
		},
		"a rebuilt target has no address": {
			given: given(nil, with(claimed("v", "fs-1", 20493)), polled(inventory{polled: true, failure: errBoom})),
			want: targets.Snapshot{Known: true, Unanswered: true, FileSystems: map[string]volumes.Candidate{
				"fs-1": {ID: "fs-1", Port: 20493, Unusable: "no address of it is known yet"},
			}},
		},
		"pinned addresses of IPv6 count": {
			given: given(tableOf(map[string]ports.Target{"server": onlyIPv6(20490)}), pinned(document{table: tableOf(map[string]ports.Target{"server": onlyIPv6(20490)})})),
			want: targets.Snapshot{Known: true, FileSystems: map[string]volumes.Candidate{
				"server": {ID: "server", Port: 20490, Zones: []string{"b"}},
			}},
		},
		"the filter hides what the table keeps, but nothing that is pinned": {
			given: given(tableOf(map[string]ports.Target{"fs-1": target(20490), "fs-2": target(20491), "server": target(20492)}),
				pinned(document{table: tableOf(map[string]ports.Target{"server": target(20492)})})),
			edit: func(o *Options) { o.Filter = efs.Filter{IDs: []string{"fs-2"}, Tags: map[string]string{"team": "b"}} },
			want: targets.Snapshot{Known: true, FileSystems: map[string]volumes.Candidate{
				"fs-2":   {ID: "fs-2", Port: 20491, Zones: []string{"a"}},
				"server": {ID: "server", Port: 20492, Zones: []string{"a"}},
			}},
		},
		"another installation's serves no claim, and never counts as gone": {
			given: given(tableOf(map[string]ports.Target{"fs-1": target(20490), "fs-2": target(20491)}), with(otherRoot(corev1.VolumeBound)),
				func(s *fixture) {
					s.inventory = found(listing(3, fileSystem("fs-2", "a")))
					s.inventory.existence = map[string]existence{"fs-1": {listing: s.inventory.listing.ReadAt, gone: true}}
					s.assigned.Absences = map[string]int{"fs-1": 2}
				}, with(claimed("v", "fs-1", 20490))),
			want: targets.Snapshot{Known: true, Listed: true, Others: map[string]string{"fs-1": "elsewhere"}, FileSystems: map[string]volumes.Candidate{
				"fs-1": {ID: "fs-1", Zones: []string{"a"}, Unusable: "it belongs to the installation in namespace elsewhere: uninstall one of the two, " +
					"or separate their file systems by --file-system-ids or --file-system-tags"},
				"fs-2": {ID: "fs-2", Port: 20491, Tags: tags, Zones: []string{"a"}},
			}},
		},
		"tags that were seen count for the filter": {
			given: given(tableOf(map[string]ports.Target{"fs-1": target(20490)}), polled(found(listing(1, fileSystem("fs-1", "a"))))),
			edit:  func(o *Options) { o.Filter = efs.Filter{Tags: map[string]string{"team": "b"}} },
			want: targets.Snapshot{Known: true, Listed: true, FileSystems: map[string]volumes.Candidate{}, Excluded: map[string]string{
				"fs-1": "it lacks the tag team=b of --file-system-tags: aws efs tag-resource --resource-id fs-1 --tags Key=team,Value=b",
			}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := options()
			if tt.edit != nil {
				tt.edit(&o)
			}
			if diff := cmp.Diff(tt.want, tt.given.plan(o).snapshot, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("snapshot mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSettingsThatLeaveNoFileSystemAreACondition: nothing else would say why no claim is served.
func TestSettingsThatLeaveNoFileSystemAreACondition(t *testing.T) {
	listed := polled(found(listing(1, fileSystem("fs-1", "a"), fileSystem("fs-2", "b"))))
	for name, tt := range map[string]struct {
		filter efs.Filter
		want   int
	}{
		"no filter":          {efs.Filter{}, 0},
		"one passes":         {efs.Filter{IDs: []string{"fs-2"}}, 0},
		"none has the tag":   {efs.Filter{Tags: map[string]string{"efs-stunnel": "true"}}, 1},
		"none is of the ids": {efs.Filter{IDs: []string{"fs-3"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Filter = tt.filter
			var got []notice
			for _, n := range given(tableOf(map[string]ports.Target{}), listed).plan(o).notices {
				if n.Reason == wellknown.EventFileSystemsExcluded {
					got = append(got, n)
				}
			}
			if len(got) != tt.want || tt.want > 0 && !strings.Contains(got[0].Message, "fs-1, fs-2") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func onlyIPv6(port int) ports.Target {
	t := target(port)
	t.AddressBySubnet, t.AddressByZone = nil, nil
	t.IPv6ByZone = map[string]netip.Addr{"b": netip.MustParseAddr("fd00::4")}
	return t
}

func TestFilteredTargetsGetNoRootVolume(t *testing.T) {
	o := options()
	o.Filter = efs.Filter{IDs: []string{"fs-2"}}
	p := given(tableOf(map[string]ports.Target{"fs-1": target(20490)}), rooted(map[string]int{"fs-1": 20490})).plan(o)
	if got := outlineOf(p); len(got.Roots) > 0 || got.Ports["fs-1"] != 20490 {
		t.Errorf("got %+v", got)
	}
}

func TestNumbers(t *testing.T) {
	lost, broken := target(20491), target(20492)
	lost.NotFoundSince = noon
	broken.AddressBySubnet, broken.AddressByZone = nil, nil
	sized := fileSystem("fs-1", "a")
	sized.SizeBytes = 4096
	s := given(tableOf(map[string]ports.Target{"fs-1": target(20490), "fs-2": lost, "fs-3": broken}),
		polled(found(listing(1, sized))), with(claimed("v", "", 20495)))
	o := options()
	o.Range.Reserved = []int{20499}
	got := s.plan(o).numbers
	want := numbers{
		portsInUse: one(3), portsFree: one(5), identity: one(0),
		lastSuccess:    one(float64(noon.Add(time.Minute).Unix())),
		pointCount:     {usable: 0, unusable: 0, waiting: 0},
		targetCount:    {usable: 1, missing: 2, unusable: 0}, // the listing lacks fs-3, too
		fileSystemSize: {"fs-1": 4096},
		unreadable:     {"efs-stunnel": 0, "efs-stunnel-pinned": 0},
		tableBytes:     one(float64(len(s.table.content()))),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("numbers mismatch (-want +got):\n%s", diff)
	}
}
