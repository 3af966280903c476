package main

import "fmt"

// scaleRows have the library where it does the same case.
func (r results) scaleRows() []row {
	var rows []row
	for _, ours := range r.Scales {
		if ours.Contender != managerName {
			continue
		}
		var peer scale
		for _, s := range r.Scales {
			if s.Contender != managerName && s.Case == ours.Case {
				peer = s
			}
		}
		rows = append(rows,
			row{fmt.Sprintf("%d volumes, one processor; %d %s: memory at its peak", ours.Volumes, ours.Number, ours.Case), ours.Memory.Peak, "MiB", target{ours.Limit, atMost}, peer.Memory.Peak},
			row{"… processor", ours.Processor, "s", target{}, peer.Processor},
			row{"… took", ours.Seconds, "s", target{}, peer.Seconds},
		)
	}
	return rows
}

func (r results) churnRows() []row {
	if r.Churn == nil {
		return nil
	}
	c := r.Churn
	what := fmt.Sprintf("%d volumes, %g claims deleted each second: elected → loops begin, worst", c.Volumes, c.PerSecond)
	return []row{
		{what, c.Begun.Max, "s", target{10, atMost}, 0},
		{"… leader asked to end → next claim begun, worst", c.Served.Max, "s", target{}, 0},
		{fmt.Sprintf("… did not begin within %g s", c.Deadline), float64(c.Missed), "times", target{0, atMost}, 0},
	}
}
