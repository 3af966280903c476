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

func (r results) fileRows() (rows []row) {
	if r.Clone != nil {
		rows = r.Clone.rows(cloneTimes, target{})
	}
	for _, survey := range r.Surveys {
		rows = append(rows, survey.rows(surveyTimes, target{surveyMemory, atMost})...)
	}
	return rows
}

func (c comparison) rows(times float64, memory target) []row {
	return []row{
		{c.What, c.Job.Rate, filesPerSecond, target{times * c.Peer.Rate, atLeast}, c.Peer.Rate},
		{"… requests for each file", c.Job.each(), "requests", target{}, c.Peer.each()},
		{"… memory at its peak", c.Job.Peak, "MiB", memory, 0},
	}
}
