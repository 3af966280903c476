package agent_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// successor is a pod that a rollout starts beside another one. It does not wait for its tunnels' health.
func (p *pod) successor(change func(*agent.Options)) *pod {
	p.Helper()
	second := p.pod(p.http)
	second.startSupervisor()
	second.startAgent(func(o *agent.Options) {
		o.ProbeInterval, o.HealthWait = time.Second, 0
		if change != nil {
			change(o)
		}
	})
	return second
}

// waitsFor waits until the pod is not ready because of what the pod before it serves.
func (p *pod) waitsFor(what string) {
	p.Helper()
	p.until("it is not ready because "+what, func() bool {
		err := p.agent.Ready()
		return err != nil && strings.Contains(err.Error(), "the pod before this one serves "+what)
	})
}

func TestAuthorityOfTheNewPodStopsRollout(t *testing.T) {
	first, local, near, far := oneTunnel(t)
	conn := first.hold(local)
	wrong := stunneltest.NewAuthority(t)
	second := first.successor(func(o *agent.Options) {
		o.Routing.CAFile, o.Dialer = wrong.File, &probe.Network{CAFile: wrong.File}
	})
	second.waitsFor("fs-1, this one cannot: ")
	if err := first.call(conn); err != nil {
		t.Errorf("the old pod does not serve any more: %v", err)
	}
	near.close()
	far.close()
	second.until("it is ready, as neither pod serves in an outage", second.ready)
}

func TestTargetThatOnlyTheOldPodHasStopsRollout(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(fs1 ports.Target) map[string]ports.Target // of the table
		want   string
	}{
		"missing": {func(ports.Target) map[string]ports.Target { return nil }, "port "},
		"without address": {func(fs1 ports.Target) map[string]ports.Target {
			fs1.AddressByZone = nil
			return map[string]ports.Target{"fs-1": fs1}
		}, "fs-1, this one cannot: NoAddress"},
	} {
		t.Run(name, func(t *testing.T) {
			first, local, _, _ := oneTunnel(t)
			conn := first.hold(local)
			other, fs1 := target(int(stunneltest.FreePort(t, "127.0.0.1").Port()), "127.1.0.2", ""), target(int(local.Port()), "127.1.0.1", "127.1.0.2")
			table := map[string]ports.Target{"fs-2": other}
			maps.Copy(table, tt.change(fs1))
			first.publish(tableOf(table))
			first.until("the old pod reports it", func() bool {
				_, ok := first.metric("efs_stunnel_node_target_unusable", "fs-1")
				return ok
			})
			second := first.successor(nil)
			second.waitsFor(tt.want)
			if err := first.call(conn); err != nil {
				t.Errorf("the old pod does not serve any more: %v", err)
			}
			first.publish(tableOf(map[string]ports.Target{"fs-1": fs1, "fs-2": other}))
			second.until("it is ready when the table is corrected", second.ready)
		})
	}
}
