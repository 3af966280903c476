package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

// sysctls are a node's settings.
func sysctls(portRange, reserved string) fstest.MapFS {
	return fstest.MapFS{
		"net/ipv4/ip_local_port_range":     {Data: []byte(portRange)},
		"net/ipv4/ip_local_reserved_ports": {Data: []byte(reserved)},
	}
}

func tunnelsOn(ports ...int) []routing.Tunnel {
	var tunnels []routing.Tunnel
	for i, port := range ports {
		tunnels = append(tunnels, routing.Tunnel{Tunnel: tunnelspec.Tunnel{Name: fmt.Sprintf("fs-%d", i+1)}, Port: port})
	}
	return tunnels
}

func TestTunnelsOnEphemeralPortsAreReportedOnce(t *testing.T) {
	const (
		gives    = "Warning PortInEphemeralRange the kernel gives ports 1024-65535 to processes that ask for any, also the tunnels' ports "
		listens  = ": a tunnel cannot listen while another process has its port. Reserve them on the node: sysctl net.ipv4.ip_local_reserved_ports="
		defaults = "20490-21489"
		beside   = ", beside what that setting has already"
	)
	tests := map[string]struct {
		settings fstest.MapFS
		tunnels  []routing.Tunnel
		number   float64
		want     string // "" is no event
	}{
		"a node with the kernel's defaults": {sysctls("32768\t60999\n", "\n"), tunnelsOn(20490, 20491), 0, ""},
		"a node without tunnels":            {sysctls("1024\t65535\n", "\n"), nil, 0, ""},
		"a node that gives all ports": {
			sysctls("1024\t65535\n", "\n"), tunnelsOn(20490, 20491), 2,
			gives + "20490 (fs-1), 20491 (fs-2)" + listens + defaults,
		},
		"a node that reserves some": {
			sysctls("1024\t65535\n", "8080,20490-20492\n"), tunnelsOn(20490, 20491, 20492, 20493), 1,
			gives + "20493 (fs-4)" + listens + defaults + beside,
		},
		"a node that reserves all": {sysctls("1024\t65535\n", "20490-21489\n"), tunnelsOn(20490, 21489), 0, ""},
		"many tunnels": {
			sysctls("1024\t65535\n", ""), tunnelsOn(20490, 20491, 20492, 20493, 20494, 20495, 20496), 7,
			gives + "20490 (fs-1), 20491 (fs-2), 20492 (fs-3), 20493 (fs-4), 20494 (fs-5) and 2 others" + listens + defaults,
		},
		"ports of another range": {
			sysctls("1024\t65535\n", ""), tunnelsOn(41000, 40000), 2, gives + "41000 (fs-1), 40000 (fs-2)" + listens + "40000-41000",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			recorder := record.NewFakeRecorder(10)
			a := reportingAgent(recorder)
			a.options.ProcSys, a.plan.Tunnels = tt.settings, tt.tunnels
			for range 2 {
				a.report(t.Context(), time.Now())
			}
			close(recorder.Events)
			if got := <-recorder.Events; got != tt.want {
				t.Errorf("event mismatch:\ngot  %s\nwant %s", got, tt.want)
			}
			if again, more := <-recorder.Events; more {
				t.Errorf("got a second event: %s", again)
			}
			if got := testutil.ToFloat64(a.metrics.ephemeral); got != tt.number {
				t.Errorf("metric: got %v, want %v", got, tt.number)
			}
		})
	}
}

func TestEphemeralPortsAreReadAgain(t *testing.T) {
	var log bytes.Buffer
	recorder := record.NewFakeRecorder(10)
	a := reportingAgent(recorder)
	a.options.Log, a.plan.Tunnels = slog.New(slog.NewTextHandler(&log, nil)), tunnelsOn(20490)
	now := time.Now()
	report := func(after time.Duration, settings fstest.MapFS, want float64) {
		t.Helper()
		now, a.options.ProcSys = now.Add(after), settings
		a.report(t.Context(), now)
		if got := testutil.ToFloat64(a.metrics.ephemeral); got != want {
			t.Errorf("metric: got %v, want %v", got, want)
		}
	}
	report(0, sysctls("1024 65535", ""), 1)
	report(ephemeralInterval-1, sysctls("32768 60999", ""), 1) // not read yet
	report(1, sysctls("32768 60999", ""), 0)
	report(ephemeralInterval, sysctls("1024 65535", ""), 1)
	for range 2 { // and what was read before stays
		report(ephemeralInterval, sysctls("1024", ""), 1)
	}
	if lines := strings.Count(log.String(), "node's port settings cannot be read"); lines != 1 {
		t.Errorf("%d lines of log about a setting that cannot be read:\n%s", lines, &log)
	}
	report(ephemeralInterval, fstest.MapFS{}, 1)
	if !strings.Contains(log.String(), "ip_local_port_range: file does not exist") {
		t.Errorf("the log lacks the missing setting:\n%s", &log)
	}
}
