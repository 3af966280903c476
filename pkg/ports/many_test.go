package ports_test

import (
	"fmt"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// newPoints returns the input with so many access points that have no port yet.
func newPoints(count int) ports.Input {
	in := ports.Input{
		Range: ports.Range{Base: 20490, Count: 20000}, Now: noon, VPCID: "vpc-1", DNSSuffix: "efs.test",
		Listing: listing("fs-1"), Demand: ports.Demand{Known: true},
	}
	for i := range count {
		in.Demand.AccessPoints = append(in.Demand.AccessPoints, ports.Key{FileSystem: "fs-1", AccessPoint: fmt.Sprintf("fsap-%017x", i)})
	}
	in.Demand.IAM = in.Demand.AccessPoints
	return in
}

// TestCostOfNewAccessPointsGrowsWithTheirNumber: one pass over all of them, not one for each.
func TestCostOfNewAccessPointsGrowsWithTheirNumber(t *testing.T) {
	allocations := func(count int) float64 {
		in := newPoints(count)
		return testing.AllocsPerRun(1, func() {
			if out := ports.Assign(in); len(portsOf(out.Table)) != count+1 {
				t.Fatalf("%d keys have ports", len(portsOf(out.Table)))
			}
		})
	}
	if few, many := allocations(500), allocations(2000); many > 6*few {
		t.Errorf("500 take %.0f allocations, 2000 take %.0f", few, many)
	}
}

// The table's bytes are counted for each newcomer, as they are once it is encoded.
func TestTableFullOfAccessPointsIsBelowItsLimit(t *testing.T) {
	in := newPoints(2000)
	for i := range 22 {
		in.Listing.FileSystems = append(in.Listing.FileSystems, large(fmt.Sprintf("fs-9%02d", i)))
	}
	out := ports.Assign(in)
	size, served := len(ports.Encode(out.Table)), len(portsOf(out.Table))-23
	if size > ports.MaxTableBytes || size < ports.MaxTableBytes-100 || served < 1 || served+len(out.Conditions) != 2000 {
		t.Errorf("%d of 2000 are in a table of %d bytes, %d are reported", served, size, len(out.Conditions))
	}
}

func BenchmarkNewAccessPoints(b *testing.B) {
	in := newPoints(5000)
	for b.Loop() {
		ports.Assign(in)
	}
}
