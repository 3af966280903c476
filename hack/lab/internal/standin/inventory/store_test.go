package inventory

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/hack/lab/internal/jsonfile"
)

func open(t *testing.T, file string) *Store {
	t.Helper()
	next := 0
	s, err := Open(file, Options{
		Zones: []Zone{
			{Name: "us-east-1a", ID: "use1-az1", SubnetID: "subnet-0a", CIDR: "10.90.1.0/24", IPv6CIDR: "fd00:90:0:1::/64"},
			{Name: "us-east-1b", ID: "use1-az2", SubnetID: "subnet-0b", CIDR: "10.90.2.0/24", IPv6CIDR: "fd00:90:0:2::/64"},
		},
		NewID: func(prefix string) string { next++; return fmt.Sprintf("%s-%017x", prefix, next) },
		Now:   func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNewStoreHasTheDefaultFileSystems(t *testing.T) {
	w := open(t, filepath.Join(t.TempDir(), "inventory.json")).Snapshot()
	got := map[string][]string{}
	for id, fs := range w.FileSystems {
		for _, target := range w.MountTargetsOf(id) {
			got[fs.Name()] = append(got[fs.Name()], target.Zone+" "+target.Address)
		}
	}
	want := map[string][]string{
		"shared":  {"us-east-1a 10.90.1.200", "us-east-1b 10.90.2.200"},
		"archive": {"us-east-1a 10.90.1.201", "us-east-1b 10.90.2.201"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("default mount targets (-want +got):\n%s", diff)
	}
}

func TestMountTargetsHaveAddressesOfTheStoresType(t *testing.T) {
	options := open(t, filepath.Join(t.TempDir(), "inventory.json")).options
	options.AddressType = IPv6
	s, err := Open(filepath.Join(t.TempDir(), "inventory.json"), options)
	if err != nil {
		t.Fatal(err)
	}
	fs, err := s.CreateFileSystem(NewFileSystem{Name: "new"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateMountTarget(NewMountTarget{FileSystemID: fs.ID, Zone: "us-east-1a"}); err != nil {
		t.Fatal(err)
	}
	if targets := s.Snapshot().MountTargets; len(targets) != 5 {
		t.Errorf("%d mount targets, want 5", len(targets))
	}
	for _, target := range s.Snapshot().MountTargets {
		if target.Address != "" || target.IPv6 == "" {
			t.Errorf("%s has addresses %q, want one of IPv6", target.ID, target.Addresses())
		}
	}
}

func TestMountTargetsHaveAddressesOfTheirType(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "inventory.json"))
	tests := []struct {
		kind AddressType
		want []string
	}{
		{"", []string{"10.90.1.202"}},
		{IPv6, []string{"fd00:90:0:1::cb"}},
		{DualStack, []string{"10.90.1.204", "fd00:90:0:1::cc"}},
		{IPv4, []string{"10.90.1.205"}},
	}
	for _, tt := range tests {
		fs, err := s.CreateFileSystem(NewFileSystem{Name: string("new " + tt.kind)})
		if err != nil {
			t.Fatal(err)
		}
		target, err := s.CreateMountTarget(NewMountTarget{FileSystemID: fs.ID, Zone: "us-east-1a", AddressType: tt.kind})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, target.Addresses()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.kind, diff)
		}
	}
	_, err := s.CreateMountTarget(NewMountTarget{FileSystemID: "fs-0123456789abcdef0", Zone: "us-east-1a", AddressType: "ipv5"})
	if err == nil || !strings.Contains(err.Error(), "want one of ipv4, ipv6, dual") {
		t.Errorf("got %v", err)
	}
}

func TestInventorySurvivesARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "inventory.json")
	s := open(t, file)
	fs, err := s.CreateFileSystem(NewFileSystem{Name: "new", Zone: "us-east-1b"})
	if err != nil {
		t.Fatal(err)
	}
	target, err := s.CreateMountTarget(NewMountTarget{FileSystemID: fs.ID, Zone: "us-east-1b"})
	if err != nil {
		t.Fatal(err)
	}
	if target.Address != "10.90.2.202" {
		t.Errorf("address %s, want the next free one 10.90.2.202", target.Address)
	}
	if _, err := s.CreateAccessPoint(NewAccessPoint{FileSystemID: fs.ID, Path: "/a", PosixUser: &PosixUser{1, 2}}); err != nil {
		t.Fatal(err)
	}
	if err := s.UpdateFileSystem(fs.ID, FileSystemChange{Replicating: new(true), RequireIAM: new(true)}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Snapshot(), open(t, file).Snapshot()); diff != "" {
		t.Errorf("inventory after a restart (-before +after):\n%s", diff)
	}
}

func TestPublishedSnapshotNeverChanges(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "inventory.json"))
	before := s.Snapshot()
	if err := s.DeleteFileSystem("fs-0123456789abcdef0", true); err != nil {
		t.Fatal(err)
	}
	if len(before.FileSystems) != 2 || len(s.Snapshot().FileSystems) != 1 || len(s.Snapshot().MountTargets) != 2 {
		t.Errorf("before %d, after %d", len(before.FileSystems), len(s.Snapshot().FileSystems))
	}
}

func TestInvalidChangesAreRefusedWithTheReason(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "inventory.json"))
	const shared = "fs-0123456789abcdef0"
	if _, err := s.CreateFileSystem(NewFileSystem{ID: "fs-00000000000000aaa", Zone: "us-east-1a"}); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		err  error
		text string
	}{
		"unknown zone":         {create(s.CreateFileSystem(NewFileSystem{Zone: "mars"})), "us-east-1a, us-east-1b"},
		"bad id":               {create(s.CreateFileSystem(NewFileSystem{ID: "x"})), "8 to 40"},
		"used id":              {create(s.CreateFileSystem(NewFileSystem{ID: shared})), shared + " exists already"},
		"unknown state":        {s.UpdateFileSystem(shared, FileSystemChange{State: "ill"}), "creating, available"},
		"unknown file system":  {s.UpdateFileSystem("fs-1", FileSystemChange{}), "file system fs-1 does not exist"},
		"second in the zone":   {create(s.CreateMountTarget(NewMountTarget{FileSystemID: shared, Zone: "us-east-1a"})), "in zone us-east-1a already"},
		"outside the one zone": {create(s.CreateMountTarget(NewMountTarget{FileSystemID: "fs-00000000000000aaa", Zone: "us-east-1b"})), "us-east-1a only"},
		"still mounted":        {s.DeleteFileSystem(shared, false), "2 mount targets"},
		"climbing path":        {create(s.CreateAccessPoint(NewAccessPoint{FileSystemID: shared, Path: "/a/../b"})), "/a/../b"},
		"deep path":            {create(s.CreateAccessPoint(NewAccessPoint{FileSystemID: shared, Path: "/1/2/3/4/5"})), "4 directories"},
		"bad mode":             {create(s.CreateAccessPoint(NewAccessPoint{FileSystemID: shared, CreationInfo: &CreationInfo{Permissions: "rwx"}})), "octal"},
		"node without address": {s.PutNode(Node{Name: "n"}), "IP address"},
		"unknown access point": {s.DeleteAccessPoint("fsap-1"), "access point fsap-1 does not exist"},
		"unknown mount target": {s.DeleteMountTarget("fsmt-1"), "mount target fsmt-1 does not exist"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.err == nil || !strings.Contains(tt.err.Error(), tt.text) {
				t.Errorf("got %v, want an error that mentions %q", tt.err, tt.text)
			}
		})
	}
}

func create[T any](_ T, err error) error { return err }

func TestNodeIsFoundByItsAddressAndThoseOfItsPods(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "inventory.json"))
	node := Node{Name: "node-1", Address: "10.90.1.11", PodCIDR: "10.91.1.0/24", MAC: "52:54:00:00:00:01", Zone: "us-east-1a"}
	if err := s.PutNode(node); err != nil {
		t.Fatal(err)
	}
	for client, want := range map[string]bool{"10.90.1.11": true, "10.91.1.77": true, "::ffff:10.91.1.77": true, "10.91.2.77": false, "10.90.1.12": false} {
		if _, got := s.Snapshot().NodeOf(netip.MustParseAddr(client)); got != want {
			t.Errorf("node of %s found: %t, want %t", client, got, want)
		}
	}
}

func TestRandomIDsHaveTheFormOfEFS(t *testing.T) {
	if id := RandomID("fs"); checkID("fs", id) != nil || len(id) != len("fs-0123456789abcdef0") {
		t.Errorf("got %s", id)
	}
}

func TestFileSystemHasLimitedAccessPoints(t *testing.T) {
	file := filepath.Join(t.TempDir(), "inventory.json")
	full := open(t, file).Snapshot().clone()
	const fileSystem = "fs-0123456789abcdef0"
	for i := range MaxAccessPoints {
		id := fmt.Sprintf("fsap-%017x", i)
		full.AccessPoints[id] = AccessPoint{ID: id, FileSystemID: fileSystem, ClientToken: id, Path: "/", State: Available}
	}
	if err := jsonfile.Write(file, full); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, file).CreateAccessPoint(NewAccessPoint{FileSystemID: fileSystem, ClientToken: "pvc-1"}); !errors.Is(err, ErrTooManyAccessPoints) {
		t.Errorf("got %v", err)
	}
}
