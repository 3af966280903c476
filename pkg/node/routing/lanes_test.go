package routing_test

import (
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

// TestLanesOfATargetAreInItsSpecification, and stay there when the target leaves the table.
func TestLanesOfATargetAreInItsSpecification(t *testing.T) {
	in := input(func(in *routing.Input) {
		target := threeZones()
		target.Lanes = 4
		in.Table.Targets["fs-1"] = target
	})
	planned := routing.NewPlan(in)
	in.Table.Targets = nil
	in.States, in.Files, in.Used = planned.States, []string{"fs-1"}, map[string]bool{"fs-1": true}
	in.Specs = map[string][]byte{"fs-1": planned.Tunnels[0].Spec}
	for name, plan := range map[string]routing.Plan{"in the table": planned, "left the table": routing.NewPlan(in)} {
		if len(plan.Tunnels) != 1 {
			t.Fatalf("%s: there are %d tunnels", name, len(plan.Tunnels))
		}
		spec, err := tunnelspec.Decode(plan.Tunnels[0].Spec)
		if err != nil || spec.Lanes != 4 {
			t.Errorf("%s: got %d lanes, %v", name, spec.Lanes, err)
		}
	}
}
