package nfsops

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// onDisk compares two directories of a disk. What of NFS there is none of is counted by the test.
func onDisk(t *testing.T, each uint64) Comparison {
	requests := map[string]uint64{}
	return Comparison{
		Dirs: [2]string{t.TempDir(), t.TempDir()}, Count: 3, Rounds: 2, Bytes: 2 << 20,
		Requests: func(dir string) (uint64, error) {
			requests[dir] += each // asked before and after operations
			return requests[dir], nil
		},
		Processor: ProcessorTime,
	}
}

func TestBothMountsDoEveryOperation(t *testing.T) {
	c := onDisk(t, 6)
	result, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range result.Operations {
		names = append(names, o.Name)
		for _, m := range o.Mounts {
			if m.P50 <= 0 || m.P99 < m.P50 || m.Requests != 2 {
				t.Errorf("%s: %+v", o.Name, m)
			}
		}
	}
	if got := strings.Join(names, ", "); got != "GETATTR, LOOKUP, CREATE, write of 8 KiB and commit, read of 4 KiB" {
		t.Errorf("operations %s", got)
	}
	for _, s := range result.Streams {
		for _, m := range s.Mounts {
			if m.Bytes != 4<<20 || m.Seconds <= 0 {
				t.Errorf("%s: %+v", s.Name, m)
			}
		}
	}
	for _, dir := range c.Dirs {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v is left in %s, %v", left, dir, err)
		}
	}
}

func TestCachedOperationsAreAnError(t *testing.T) {
	c := onDisk(t, 2) // requests for three operations
	if _, err := c.Run(); !errors.Is(err, ErrCached) {
		t.Errorf("got %v", err)
	}
}

func TestPercentiles(t *testing.T) {
	var took []time.Duration
	for i := range 200 {
		took = append(took, time.Duration(200-i))
	}
	if got := newTimes(took, 300); got != (Times{P50: 100, P99: 198, Requests: 1.5}) {
		t.Errorf("got %+v", got)
	}
	if got := newTimes([]time.Duration{7}, 1); got != (Times{P50: 7, P99: 7, Requests: 1}) {
		t.Errorf("got %+v of one", got)
	}
}

func TestRequestsOfAMount(t *testing.T) {
	mounts := []*procfs.Mount{
		{Mount: "/"},
		{Mount: "/a", Stats: &procfs.MountStatsNFS{Operations: []procfs.NFSOperationStats{{Operation: "READ", Requests: 3}, {Operation: "OPEN", Requests: 4}}}},
	}
	if sum, err := requestsAt(mounts, "/a"); sum != 7 || err != nil {
		t.Errorf("got %d, %v", sum, err)
	}
	for _, path := range []string{"/", "/b"} {
		if _, err := requestsAt(mounts, path); err == nil {
			t.Errorf("%s is no mount of NFS", path)
		}
	}
}

func TestServerOfAVolume(t *testing.T) {
	const volumes = `NV SERVER   PORT DEV          FSID                              FSC
v4 7f000001 500a 0:51         0:0                               no
v4 0a5a01c8  801 0:63         0:0                               no
`
	if server, err := serverOf(strings.NewReader(volumes), "0:63"); server != "0a5a01c8 801" || err != nil {
		t.Errorf("got %q, %v", server, err)
	}
	if _, err := serverOf(strings.NewReader(volumes), "0:5"); err == nil {
		t.Error("no volume has the device 0:5")
	}
	if _, err := ServerOf(strings.NewReader(volumes), t.TempDir()); err == nil {
		t.Error("a disk is no volume of NFS")
	}
}
