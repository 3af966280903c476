package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// ReapOrphans reaps the zombies of which this process is the parent, but which it has not started: the
// kernel reparents orphans to the first process of a container. The caller's own children are those for
// which own returns true.
func ReapOrphans(own func(pid int) bool) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		pid, notPID := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		stat, gone := os.ReadFile(file)
		if notPID != nil || gone != nil || !isZombieOf(stat, os.Getpid()) || own(pid) {
			continue
		}
		// The exit status of an orphan is of no interest, nor is an error.
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}

// isZombieOf parses proc_pid_stat(5): pid, (name), state, parent. The name may contain any character.
func isZombieOf(stat []byte, parent int) bool {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(fields) > 1 && string(fields[0]) == "Z" && string(fields[1]) == strconv.Itoa(parent)
}
