// Package proc starts processes that outlive the program that started them, and later finds and stops
// them by pid and start time, never by name.
//
// Each process has a record, one JSON file in a Dir. The process itself writes the record just before
// it executes the program (see Exec), so that no process ever runs without a record.
package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"gnuthought.com/efs-stunnel/hack/lab/internal/jsonfile"
)

// Spec describes a process to start.
type Spec struct {
	Name    string   `json:"name"`              // unique in its Dir; also the name of the record's file
	Args    []string `json:"args"`              // program and arguments; the program is an absolute path
	Env     []string `json:"env,omitempty"`     // KEY=value, added to the caller's environment
	WorkDir string   `json:"workDir,omitempty"` // "" = the caller's
	LogFile string   `json:"logFile"`           // receives stdout and stderr, appended
	NetNS   string   `json:"netNS,omitempty"`   // path of a network namespace to run in; "" = the caller's
	Address string   `json:"address,omitempty"` // what it serves, for people
	// Digest stands for inputs that are not in Args, such as the content of a configuration file. When
	// it changes, the process has to be replaced.
	Digest string `json:"digest,omitempty"`
}

// Record is a started process.
type Record struct {
	Spec
	PID       int       `json:"pid"`
	StartTime uint64    `json:"startTime"` // clock ticks since boot, field 22 of /proc/PID/stat
	BootID    string    `json:"bootID"`    // StartTime is of this boot only
	StartedAt time.Time `json:"startedAt"` // for people, and to recognize older reports about it
}

// Alive reports whether the process of the record still runs, and not another one with its pid.
func (r Record) Alive() bool {
	_, alive := r.Usage()
	return alive
}

// Matches reports whether the process was started from an equal spec.
func (r Record) Matches(s Spec) bool {
	return slices.Equal(r.Args, s.Args) && slices.Equal(r.Env, s.Env) &&
		r.WorkDir == s.WorkDir && r.NetNS == s.NetNS && r.Digest == s.Digest
}

// Dir is a folder of records.
type Dir struct{ Path string }

// Get reads the record of a name; false when there is none.
func (d Dir) Get(name string) (Record, bool) {
	r, err := readRecord(d.file(name))
	return r, err == nil
}

// List reads all records, sorted by name. A record cut short by a crash is
// an error naming its file, because its process may still run.
func (d Dir) List() ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(d.Path, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing process records in %s: %w", d.Path, err)
	}
	records := make([]Record, 0, len(files))
	for _, f := range files {
		r, err := readRecord(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // stopped meanwhile
		}
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Name, b.Name) })
	return records, nil
}

func (d Dir) file(name string) string { return filepath.Join(d.Path, name+".json") }

func readRecord(file string) (Record, error) {
	r, err := jsonfile.Read[Record](file)
	if err != nil {
		return Record{}, fmt.Errorf("reading process record: %w", err)
	}
	return r, nil
}

func statOf(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	return stat, nil
}

func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
