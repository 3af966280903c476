package topology_test

import (
	"net/netip"
	"runtime"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/efs/topology"
)

func addresses(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestHasRoute(t *testing.T) {
	if topology.HasRoute() {
		t.Error("a route to nothing")
	}
	if !topology.HasRoute(addresses("127.0.0.1")...) {
		t.Error("no route to the loopback")
	}
	inEmptyNetwork(t, func() {
		for _, text := range []string{"10.0.0.4", "fd00::4", "169.254.169.254"} {
			if topology.HasRoute(netip.MustParseAddr(text)) {
				t.Errorf("a route to %s in an empty network", text)
			}
		}
	})
}

// inEmptyNetwork runs in a network namespace without any interface that is up.
func inEmptyNetwork(t *testing.T, run func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, in its namespace
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		if err == nil {
			run()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skip("no network namespace:", err)
	}
}
