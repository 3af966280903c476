package ports_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// A field that Assign forgets to compare would never be written, so each is changed here.
func TestEveryFieldCounts(t *testing.T) {
	for _, of := range []any{ports.Target{}, ports.AccessPoint{}, ports.Table{}} {
		for i := range reflect.TypeOf(of).NumField() {
			name := reflect.TypeOf(of).Field(i).Name
			if name == "LastUpdate" {
				continue
			}
			t.Run(reflect.TypeOf(of).Name()+" "+name, func(t *testing.T) {
				before, after := fullTable(), fullTable()
				zero := func(v any) { reflect.ValueOf(v).Elem().Field(i).SetZero() }
				target := after.Targets["fs-1"]
				switch of.(type) {
				case ports.Table:
					zero(&after)
				case ports.Target:
					zero(&target)
					after.Targets["fs-1"] = target
				case ports.AccessPoint:
					point := target.AccessPoints["fsap-1"]
					zero(&point)
					target.AccessPoints["fsap-1"] = point
				}
				if ports.EqualExceptTime(before, after) {
					t.Error("a difference was overlooked")
				}
				if !ports.EqualExceptTime(before, fullTable()) {
					t.Error("equal tables differ")
				}
			})
		}
	}
}

func fullTable() ports.Table {
	some := unknown(map[string]any{"x": []any{"y"}})
	return ports.Table{
		Targets: map[string]ports.Target{"fs-1": {
			Name: "n", Port: 1, AddressBySubnet: addresses("s", "10.0.0.4"), AddressByZone: addresses("z", "10.0.0.4"),
			IPv6BySubnet: addresses("s", "fd00::4"), IPv6ByZone: addresses("z", "fd00::4"),
			DNSName: "d", CACertificates: "certificates", ClientCertificate: true, AvailabilityZone: "z", NotFoundSince: noon, PinnedOnly: true, IAM: true, Lanes: 2, Unknown: some,
			AccessPoints: map[string]ports.AccessPoint{"fsap-1": {Port: 2, IAM: true, Unknown: some}},
		}},
		Source: "123456789012/us-east-1", Retired: []int{3}, LastUpdate: noon, Unknown: some,
	}
}

func TestAddressesOfEitherFamilyCount(t *testing.T) {
	tests := map[string]struct {
		target ports.Target
		has    bool
		zones  []string
	}{
		"none":               {},
		"IPv4 by subnet":     {ports.Target{AddressBySubnet: addresses("s", "10.0.0.4")}, true, nil},
		"IPv6 by subnet":     {ports.Target{IPv6BySubnet: addresses("s", "fd00::4")}, true, nil},
		"both, in two zones": {ports.Target{AddressByZone: addresses("b", "10.0.0.4"), IPv6ByZone: addresses("a", "fd00::4", "b", "fd00::5")}, true, []string{"a", "b"}},
		"IPv6 by zone only":  {ports.Target{IPv6ByZone: addresses("a", "fd00::4")}, true, []string{"a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.target.HasAddress(); got != tt.has {
				t.Errorf("has an address: %v", got)
			}
			if got := tt.target.Zones(); !slices.Equal(got, tt.zones) {
				t.Errorf("zones %v, want %v", got, tt.zones)
			}
		})
	}
}

func TestTargetIDs(t *testing.T) {
	for _, id := range []string{"fs-34a3p3", "fs-0123456789abcdef0", "nas", "a", "fs-" + strings.Repeat("0", 40)} {
		if err := ports.CheckTargetID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", "1", "-a", "a-", "A", "a.b", "a/b", "a\n", "a b", "fs-" + strings.Repeat("0", 41)} {
		if ports.CheckTargetID(id) == nil {
			t.Errorf("%q is accepted", id)
		}
	}
}
