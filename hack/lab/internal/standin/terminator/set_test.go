package terminator

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestApplyStartsAndStopsMountTargets(t *testing.T) {
	s := &Set{Log: quiet()}
	one, two := Spec{"fsmt-1", "fs-1", freeAddress(t)}, Spec{"fsmt-2", "fs-1", freeAddress(t)}
	ids := func() []string {
		var list []string
		for _, status := range s.Status() {
			list = append(list, status.ID+" "+string(status.Mode))
		}
		return list
	}
	apply := func(specs ...Spec) {
		t.Helper()
		if err := s.Apply(t.Context(), specs); err != nil {
			t.Fatal(err)
		}
	}
	defer apply()
	apply(one)
	first, err := s.Get("fsmt-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.SetMode(t.Context(), Refuse); err != nil {
		t.Fatal(err)
	}
	apply(one, two)
	got := ids()
	if len(got) != 2 || (got[0] != "fsmt-1 refuse" && got[1] != "fsmt-1 refuse") {
		t.Errorf("got %v, want both, the first as it was", got)
	}
	if err := s.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(one)
	if diff := cmp.Diff([]string{"fsmt-1 ok"}, ids()); diff != "" {
		t.Errorf("mount targets (-want +got):\n%s", diff)
	}
	if _, err := s.Get("fsmt-2"); err == nil || !strings.Contains(err.Error(), "fsmt-2 does not run") {
		t.Errorf("got %v for a mount target that was stopped", err)
	}
}

func TestMountTargetServesAtAllItsAddresses(t *testing.T) {
	s := &Set{Certificates: newBench(t).target.Certificates, Log: quiet()}
	ipv6, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6:", err)
	}
	addresses := []string{freeAddress(t), ipv6.Addr().String()}
	_ = ipv6.Close()
	if err := s.Apply(t.Context(), []Spec{{"fsmt-1", "fs-1", strings.Join(addresses, ",")}}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Apply(t.Context(), nil) }()
	target, err := s.Get("fsmt-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []Mode{OK, Refuse, OK} {
		if err := target.SetMode(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
		for _, address := range addresses {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if (err == nil) != (mode == OK) {
				t.Errorf("mode %s at %s: %v", mode, address, err)
			}
			if err == nil {
				conn.Close()
			}
		}
	}
}

func TestAddressInUseIsAnError(t *testing.T) {
	s := &Set{Log: quiet()}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := s.Apply(t.Context(), []Spec{{"fsmt-1", "fs-1", l.Addr().String()}}); err == nil {
		t.Error("want an error")
	}
}
