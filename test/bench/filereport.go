package main

// comparisons are those of all parts that work on files.
func (r results) comparisons() []comparison {
	if r.Clone == nil {
		return r.Surveys
	}
	return append([]comparison{*r.Clone}, r.Surveys...)
}

// Targets of Jobs that work on many files: how many times faster than the usual program they are, and how much
// memory they take at most.
const (
	cloneTimes   = 10
	surveyTimes  = 5
	surveyMemory = 64
)

func (r results) fileRows() []row {
	var rows []row
	for _, c := range r.comparisons() {
		times, memory := target{surveyTimes, atLeast}, target{surveyMemory, atMost}
		if r.Clone != nil && c.What == r.Clone.What {
			times, memory = target{cloneTimes, atLeast}, target{}
		}
		times.limit *= c.Peer.Rate
		rows = append(rows,
			row{c.What, c.Job.Rate, filesPerSecond, times, c.Peer.Rate},
			row{"… requests for each file", c.Job.each(), "requests", target{}, c.Peer.each()},
			row{"… memory at its peak", c.Job.Peak, "MiB", memory, 0},
		)
	}
	return rows
}
