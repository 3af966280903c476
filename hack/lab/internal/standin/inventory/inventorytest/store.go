// Package inventorytest makes inventories for tests.
package inventorytest

import (
	"path/filepath"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

// Now returns the creation time of the default file systems.
func Now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// New makes an inventory with the default file systems and with nodes. Its two zones have subnets of a
// network, which is the first two bytes of an address.
func New(t testing.TB, network string, nodes ...inventory.Node) *inventory.Store {
	t.Helper()
	store, err := inventory.Open(filepath.Join(t.TempDir(), "inventory.json"), inventory.Options{
		Zones: []inventory.Zone{
			{Name: "us-east-1a", ID: "use1-az1", SubnetID: "subnet-0a", CIDR: network + ".1.0/24", IPv6CIDR: "fd00:90:0:1::/64"},
			{Name: "us-east-1b", ID: "use1-az2", SubnetID: "subnet-0b", CIDR: network + ".2.0/24", IPv6CIDR: "fd00:90:0:2::/64"},
		},
		NewID: inventory.RandomID, Now: Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if err := store.PutNode(n); err != nil {
			t.Fatal(err)
		}
	}
	return store
}
