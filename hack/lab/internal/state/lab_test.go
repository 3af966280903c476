package state

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewRefusesInvalidNames(t *testing.T) {
	for _, name := range []string{"", "A", "-a", "a-", "a/b", "..", strings.Repeat("a", 21)} {
		if _, err := New(name); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
	for _, name := range []string{"a", "ci-2", strings.Repeat("a", 20)} {
		if _, err := New(name); err != nil {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestSavedSettingsAreLoaded(t *testing.T) {
	lab := Lab{Name: "a", Dir: t.TempDir()}
	if _, err := lab.Load(); !errors.Is(err, ErrNotUp) {
		t.Errorf("loading a lab that was never up: %v, want not up", err)
	}
	if _, isNew, err := lab.LoadOrDefault(); err != nil || !isNew {
		t.Errorf("a lab that was never up: new %v, %v", isNew, err)
	}
	want := DefaultSettings()
	want.APIServerPort = 12345
	if err := lab.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := lab.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings changed (-want +got):\n%s", diff)
	}
}

func TestNewNodeHasAFreeIndexAndTheSmallestZone(t *testing.T) {
	s := DefaultSettings()
	n, err := s.NewNode("node-3", "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Node{Name: "node-3", Index: 3, Zone: "us-east-1a"}, n); diff != "" {
		t.Errorf("third node (-want +got):\n%s", diff)
	}
	s.Nodes = s.Nodes[1:]
	n, err = s.NewNode("again", "us-east-1b")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Node{Name: "again", Index: 1, Zone: "us-east-1b"}, n); diff != "" {
		t.Errorf("node after a removal (-want +got):\n%s", diff)
	}
}

func TestInvalidNodesAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, zone, want string }{
		{"node-1", "", "exists already"},
		{"Node", "", "a-z"},
		{"n", "eu-west-1a", "want one of us-east-1a, us-east-1b"},
	} {
		if _, err := DefaultSettings().NewNode(tt.name, tt.zone); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s in %q: %v, want %q", tt.name, tt.zone, err, tt.want)
		}
	}
}

func TestNodeAddressesAreUnique(t *testing.T) {
	seen := make(map[string]string)
	for i := 1; i <= MaxNodes; i++ {
		for _, z := range Zones() {
			for _, ipv6Only := range []bool{false, true} {
				n := Node{Name: "n", Index: i, Zone: z.Name, IPv6Only: ipv6Only}
				if other, ok := seen[n.Address()]; ok {
					t.Fatalf("%s twice: %s", n.Address(), other)
				}
				seen[n.Address()] = z.Name
			}
		}
	}
}

func TestNodeCountOfAnExistingLabCannotChange(t *testing.T) {
	s := DefaultSettings()
	s.APIServerPort = 12345 // chosen by a flag before anything exists
	if err := s.SetNodeCount(3, true); err != nil || len(s.Nodes) != 3 {
		t.Errorf("new lab: %v, %d nodes", err, len(s.Nodes))
	}
	if err := s.SetNodeCount(3, false); err != nil {
		t.Errorf("the same count again: %v", err)
	}
	if err := s.SetNodeCount(2, false); err == nil || !strings.Contains(err.Error(), "lab node") {
		t.Errorf("another count: %v, want a hint at `lab node`", err)
	}
}

func TestAddressesOfAnExistingLabCannotChange(t *testing.T) {
	s := DefaultSettings()
	if err := s.SetIPv6Only(true, true); err != nil {
		t.Fatalf("new lab: %v", err)
	}
	added, err := s.NewNode("node-3", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range append(s.Nodes, added) {
		if n.IPv4() != "" || n.Address() != n.IPv6() || !strings.HasPrefix(n.PodCIDR(), "fd00:91:") {
			t.Errorf("node %+v has addresses of IPv4", n)
		}
	}
	if err := s.SetIPv6Only(true, false); err != nil {
		t.Errorf("the same addresses again: %v", err)
	}
	if err := s.SetIPv6Only(false, false); err == nil || !strings.Contains(err.Error(), "--ipv6-only=false") {
		t.Errorf("other addresses: %v, want the flag in the error", err)
	}
}
