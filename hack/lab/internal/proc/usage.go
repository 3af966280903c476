package proc

import "time"

// Usage is the state of a process and its processor time.
type Usage struct {
	State string        // as ps has it: R runs, S and D sleep, T is stopped
	CPU   time.Duration // used since its start, including the kernel's work for it
}

// Usage reads the usage of the record's process; false when it has ended.
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
