package nodecheck

import (
	"net/netip"
	"testing"
)

func TestAddressThatTheAgentWouldTryFirst(t *testing.T) {
	ipv4, ipv6 := netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("fd00::4")
	tests := map[string]struct {
		addresses []netip.Addr
		hasRoute  func(...netip.Addr) bool
		want      netip.Addr
	}{
		"both":                {[]netip.Addr{ipv6, ipv4}, func(...netip.Addr) bool { return true }, ipv4},
		"IPv6 only":           {[]netip.Addr{ipv4, ipv6}, func(a ...netip.Addr) bool { return a[0].Is6() }, ipv6},
		"neither":             {[]netip.Addr{ipv6, ipv4}, func(...netip.Addr) bool { return false }, ipv4},
		"one":                 {[]netip.Addr{ipv6}, func(...netip.Addr) bool { return false }, ipv6},
		"IPv4 as IPv6 has it": {[]netip.Addr{netip.MustParseAddr("::ffff:10.0.0.4")}, func(...netip.Addr) bool { return true }, ipv4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := preferred(tt.addresses, tt.hasRoute); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
