package proc

import "time"

// Usage tells what a process does with the processor.
type Usage struct {
	State string        // as ps has it: R runs, S and D sleep, T is stopped
	CPU   time.Duration // used since its start, the kernel's work for it included
}

// Usage looks at the very process of the record; false when it has ended.
func (r Record) Usage() (Usage, bool) {
	if r.PID == 0 || r.BootID != bootID() {
		return Usage{}, false
	}
	stat, err := statOf(r.PID)
	if err != nil || stat.Starttime != r.StartTime || stat.State == "Z" || stat.State == "X" {
		return Usage{}, false
	}
	return Usage{State: stat.State, CPU: time.Duration(stat.CPUTime() * float64(time.Second))}, true
}
