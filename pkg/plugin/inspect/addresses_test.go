package inspect

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

func TestAddressesOfBothFamiliesAreShown(t *testing.T) {
	at := func(pairs ...string) map[string]netip.Addr {
		all := map[string]netip.Addr{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = netip.MustParseAddr(pairs[i+1])
		}
		return all
	}
	tests := map[string]struct {
		target ports.Target
		want   map[string]string
		count  int
	}{
		"IPv4 by zone": {ports.Target{AddressByZone: at("a", "10.0.0.4"), AddressBySubnet: at("subnet-1", "10.0.0.4")}, map[string]string{"a": "10.0.0.4"}, 1},
		"both": {
			ports.Target{AddressByZone: at("a", "10.0.0.4", "b", "10.0.1.4"), IPv6ByZone: at("b", "fd00::4", "c", "fd00::5")},
			map[string]string{"a": "10.0.0.4", "b": "10.0.1.4, fd00::4", "c": "fd00::5"}, 3,
		},
		"IPv6 by subnet": {ports.Target{IPv6BySubnet: at("subnet-1", "fd00::4")}, map[string]string{"subnet-1": "fd00::4"}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, addresses(tt.target)); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if got := mountTargets(tt.target); got != tt.count {
				t.Errorf("%d mount targets, want %d", got, tt.count)
			}
		})
	}
}
