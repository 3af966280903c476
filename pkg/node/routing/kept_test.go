package routing_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// after is the input that follows a plan of fs-1, which is used, when the table has changed.
func after(t *testing.T, first routing.Plan, in routing.Input, change func(targets map[string]ports.Target)) routing.Input {
	t.Helper()
	if len(first.Tunnels) != 1 {
		t.Fatalf("got %+v, want one tunnel", first)
	}
	name := first.Tunnels[0].Name
	in.States, in.Files, in.Used = first.States, []string{name}, map[string]bool{name: true}
	in.Specs = map[string][]byte{name: first.Tunnels[0].Spec}
	change(in.Table.Targets)
	return in
}

// unusable are the changes of a table that leave no usable target for fs-1.
func unusable() map[routing.Reason]func(map[string]ports.Target) {
	changed := func(change func(*ports.Target)) func(map[string]ports.Target) {
		return func(targets map[string]ports.Target) {
			target := targets["fs-1"]
			change(&target)
			targets["fs-1"] = target
		}
	}
	return map[routing.Reason]func(map[string]ports.Target){
		routing.Missing:    func(targets map[string]ports.Target) { delete(targets, "fs-1") },
		routing.NoAddress:  changed(func(t *ports.Target) { t.AddressByZone, t.AddressBySubnet = nil, nil }),
		routing.NoHostName: changed(func(t *ports.Target) { t.DNSName = "" }),
		routing.BadPort:    changed(func(t *ports.Target) { t.Port = wellknown.NFSPort }),
		routing.BadValue:   changed(func(t *ports.Target) { t.DNSName = "10.0.0.1" }),
	}
}

func TestUsedTunnelOfAnUnusableTargetFailsOver(t *testing.T) {
	for reason, change := range unusable() {
		t.Run(string(reason), func(t *testing.T) {
			in := input(nil)
			first := routing.NewPlan(in)
			before := first.Tunnels[0]
			in = after(t, first, in, change)
			plan := routing.NewPlan(in)
			if len(plan.Unusable) != 1 || plan.Unusable[0].Reason != reason || len(plan.Tunnels) != 1 {
				t.Fatalf("got %+v, want fs-1 planned, and reported as %s", plan, reason)
			}
			kept := plan.Tunnels[0]
			if string(kept.Spec) != string(before.Spec) || kept.CheckHost != before.CheckHost || kept.Accept != before.Accept || kept.Active.Address != before.Active.Address {
				t.Errorf("got %+v, want what was planned before: %+v", kept, before)
			}
			next, action := plan.States["fs-1"].Next(routing.Observation{At: now, TimedOut: true, Direct: map[netip.Addr]routing.DirectResult{
				kept.MountTargets[0].Address: routing.DirectDown, kept.MountTargets[1].Address: routing.DirectAnswered,
			}}, kept.MountTargets)
			if action != routing.Failover {
				t.Fatalf("got %q, want a failover", action)
			}
			plan.States["fs-1"] = next
			in.States = plan.States
			for range 2 { // a sync after the failover changes nothing
				moved := routing.NewPlan(in).Tunnels[0]
				if moved.Active.Address != before.MountTargets[1].Address || moved.Restart != 1 {
					t.Errorf("got %+v, want the other mount target, and one restart", moved)
				}
				in.Specs["fs-1"] = moved.Spec
			}
		})
	}
}

func TestUnusedTunnelOfAnUnusableTargetIsNotPlanned(t *testing.T) {
	for reason, change := range unusable() {
		in := input(nil)
		in = after(t, routing.NewPlan(in), in, change)
		in.Used = nil
		if plan := routing.NewPlan(in); len(plan.Tunnels) != 0 || len(plan.Remove) != 0 {
			t.Errorf("%s: got %+v, want neither a tunnel nor a removal", reason, plan)
		}
	}
}

func TestPortOfAnotherTargetIsNotKept(t *testing.T) {
	in := input(nil)
	in = after(t, routing.NewPlan(in), in, func(targets map[string]ports.Target) {
		targets["fs-2"], targets["fs-1"] = targets["fs-1"], ports.Target{Port: 20491}
	})
	if plan := routing.NewPlan(in); len(plan.Tunnels) != 1 || plan.Tunnels[0].Name != "fs-2" {
		t.Errorf("got %+v, want only fs-2 on the port", plan.Tunnels)
	}
}

func TestCertificateOfAMissingTargetIsRenewed(t *testing.T) {
	held := routing.Certificate{Identity: accessPointIdentity(), File: "/c.pem", Key: "/client.key", Sum: strings.Repeat("a", 64)}
	in := withAccessPoint(func(in *routing.Input) { in.Certificates = map[string]routing.Certificate{accessPointTunnel: held} })
	first := routing.NewPlan(in)
	for _, tunnel := range first.Tunnels {
		if tunnel.Name == accessPointTunnel {
			first.Tunnels = []routing.Tunnel{tunnel}
		}
	}
	in = after(t, first, in, func(targets map[string]ports.Target) { delete(targets, "fs-1") })
	if diff := cmp.Diff(map[string]clientcert.Identity{accessPointTunnel: held.Identity}, routing.Identities(in)); diff != "" {
		t.Errorf("identities (-want +got):\n%s", diff)
	}
	if again := routing.NewPlan(in).Tunnels; len(again) != 1 || string(again[0].Spec) != string(first.Tunnels[0].Spec) {
		t.Errorf("got %+v, want what was planned before", again)
	}
	held.Sum = strings.Repeat("b", 64)
	in.Certificates = map[string]routing.Certificate{accessPointTunnel: held}
	kept := routing.NewPlan(in).Tunnels[0]
	if diff := cmp.Diff(held, kept.Certificate); diff != "" {
		t.Errorf("certificate (-want +got):\n%s", diff)
	}
	if text, err := tunnelspec.Decode(kept.Spec); err != nil || text.CertSum != held.Sum {
		t.Errorf("got %+v, %v, want the renewed certificate", text, err)
	}
	in.Used = nil
	if unused := routing.Identities(in); len(unused) != 0 {
		t.Errorf("unused: got %v, want no certificate", unused)
	}
}

func TestKeptTunnelLeavesStandby(t *testing.T) {
	in := input(func(in *routing.Input) { in.Standby = map[string]bool{"fs-1": true} })
	in = after(t, routing.NewPlan(in), in, unusable()[routing.Missing])
	for standby, want := range map[bool]string{true: wellknown.StandbyAddress, false: wellknown.LoopbackAddress} {
		in.Standby = map[string]bool{"fs-1": standby}
		if kept := routing.NewPlan(in).Tunnels[0]; kept.Standby != standby || kept.Accept.Addr().String() != want {
			t.Errorf("got %+v, want it to accept at %s", kept, want)
		}
	}
	in.States = map[string]routing.State{"fs-1": {Port: 20490}}
	in.Standby = map[string]bool{"fs-1": true}
	if kept := routing.NewPlan(in).Tunnels[0]; kept.Standby {
		t.Error("a tunnel that serves went back on standby")
	}
}

func TestEqualInputsGiveEqualPlansOfKeptTunnels(t *testing.T) {
	in := input(nil)
	in = after(t, routing.NewPlan(in), in, unusable()[routing.NoAddress])
	first := routing.NewPlan(in)
	in.States = first.States
	if diff := cmp.Diff(first, routing.NewPlan(in), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Errorf("second plan differs (-first +second):\n%s", diff)
	}
}

func TestOwnAuthoritiesOfATarget(t *testing.T) {
	in := input(nil)
	own := in.Table.Targets["fs-1"]
	own.CACertificates = "certificates"
	in.Table.Targets["fs-1"] = own
	first := routing.NewPlan(in)
	in = after(t, first, in, unusable()[routing.Missing])
	for when, plan := range map[string]routing.Plan{"in the table": first, "missing": routing.NewPlan(in)} {
		spec, err := tunnelspec.Decode(plan.Tunnels[0].Spec)
		if err != nil || spec.CAFile != "/own/fs-1.pem" || spec.CASum != tunnelspec.Generation([]byte("certificates")) || plan.Tunnels[0].CAFile != spec.CAFile {
			t.Errorf("%s: got %+v, %v, want the target's own authorities", when, spec, err)
		}
	}
	own.CACertificates = ""
	in.Table.Targets["fs-1"] = own
	plan := routing.NewPlan(in)
	if spec, err := tunnelspec.Decode(plan.Tunnels[0].Spec); err != nil || spec.CAFile != "/ca.pem" || plan.Tunnels[0].Authorities != "" {
		t.Errorf("taken out of the table: got %+v, %v, want the agent's", spec, err)
	}
}
