package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// machine is where the numbers come from.
type machine struct {
	CPUs int    `json:"cpus"`
	CPU  string `json:"cpu"`
	Go   string `json:"go"`
}

func thisMachine() machine {
	m := machine{CPUs: runtime.NumCPU(), CPU: runtime.GOARCH, Go: runtime.Version()}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if all, err := proc.CPUInfo(); err == nil && len(all) > 0 {
			m.CPU = all[0].ModelName
		}
	}
	return m
}

// conditions are under which something was measured.
type conditions struct {
	// Load is the machine's of the minute before.
	Load float64 `json:"loadBefore"`
	// Others is how many CPUs had something else to do meanwhile than this program and what it
	// started.
	Others float64 `json:"otherCPUs"`
}

// usage is how much CPU time was used until now, in seconds.
type usage struct {
	at       time.Time
	all, own float64
}

func usageNow() (u usage, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return u, err
	}
	u.at = time.Now()
	stat, err := proc.Stat()
	if err != nil {
		return u, fmt.Errorf("reading the machine's CPU time: %w", err)
	}
	c := stat.CPUTotal
	u.all = c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	u.own, err = ownUsage(proc)
	return u, err
}

// ownUsage is that of this program and of its children, also of those that have ended.
func ownUsage(proc procfs.FS) (seconds float64, err error) {
	var ended syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &ended); err != nil {
		return 0, fmt.Errorf("reading the CPU time of children: %w", err)
	}
	seconds = time.Duration(ended.Utime.Nano() + ended.Stime.Nano()).Seconds()
	processes, err := proc.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("listing processes: %w", err)
	}
	for _, process := range processes {
		stat, err := process.Stat()
		if err == nil && (stat.PID == os.Getpid() || stat.PPID == os.Getpid()) { // others may end meanwhile
			seconds += stat.CPUTime()
		}
	}
	return seconds, nil
}

// others is how many CPUs others used since a usage before.
func (u usage) others(before usage) float64 {
	return max(0, (u.all-before.all)-(u.own-before.own)) / u.at.Sub(before.at).Seconds()
}

// loadNow is the load of the last minute, 0 if it cannot be read.
func loadNow() float64 {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	load, err := proc.LoadAvg()
	if err != nil {
		return 0
	}
	return load.Load1
}

// memory is what a program has of it now, and had at most, in MiB.
type memory struct {
	Now  float64 `json:"now"`
	Peak float64 `json:"peak"`
}

func memoryOf(pid int) (memory, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return memory{}, err
	}
	status, err := proc.NewStatus()
	if err != nil {
		return memory{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	const mebibyte = 1 << 20
	return memory{float64(status.VmRSS) / mebibyte, float64(status.VmHWM) / mebibyte}, nil
}
