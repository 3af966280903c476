package main

import (
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/test/bench/nfsops"
)

func TestTunnelTables(t *testing.T) {
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	all := []tunnelCost{{RoundTrip: us(2700), Result: nfsops.Result{
		Operations: []nfsops.Operation{
			{Name: "GETATTR", Mounts: [2]nfsops.Times{{P50: us(1140), P99: us(2000), Requests: 1}, {P50: us(1000), P99: us(1500), Requests: 1}}},
			{Name: "CREATE", Mounts: [2]nfsops.Times{{P50: us(4500), P99: us(9000), Requests: 2}, {P50: us(4000), P99: us(8000), Requests: 2}}},
		},
		Streams: []nfsops.Stream{{Name: "write", Mounts: [2]nfsops.Flow{
			{Bytes: 512 << 20, Seconds: 8, Processor: 6}, {Bytes: 512 << 20, Seconds: 4, Processor: 2},
		}}},
	}}}
	got := tunnelTables(all)
	for _, want := range []string{
		"| 2.70 ms | GETATTR | 1.14 ms | 1.00 ms | 0.14 ms | 0.15 ms | met | 2.00 ms | 1.50 ms | 1.0, 1.0 |\n",
		"| 2.70 ms | CREATE | 4.50 ms | 4.00 ms | 0.50 ms | 0.40 ms | **missed** | 9.00 ms | 8.00 ms | 2.0, 2.0 |\n",
		"| 2.70 ms | write | 64.0 | 128 | 12.0 | 4.00 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	if got := tunnelTables(nil); got != "" {
		t.Errorf("got %q without any", got)
	}
}

func TestPlainMountHasTheOptionsOfTheTunnels(t *testing.T) {
	const options = `["nfsvers=4.1","port=20490","hard"]`
	for address, want := range map[string]string{
		"10.90.1.200:2049":             "-o port=2049,nfsvers=4.1,hard 10.90.1.200:/a/b " + plainFolder,
		"[fd00:90:1::200]:2049":        "-o port=2049,nfsvers=4.1,hard [fd00:90:1::200]:/a/b " + plainFolder,
		"10.90.1.200:2049,[fd00::1]:1": "-o port=2049,nfsvers=4.1,hard 10.90.1.200:/a/b " + plainFolder,
	} {
		got, err := plainMount(address, "/a/b", options)
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %q, %v; want %q", address, got, err, want)
		}
	}
	for _, broken := range [][2]string{{"10.90.1.200", options}, {"10.90.1.200:2049", "hard"}} {
		if got, err := plainMount(broken[0], "/a", broken[1]); err == nil {
			t.Errorf("%q: got %q", broken, got)
		}
	}
}
