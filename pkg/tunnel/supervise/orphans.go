package supervise

import (
	"bytes"
	"os"
	"strconv"
)

// zombieChildren returns the process ids of the children that have exited and are not reaped.
func zombieChildren(parent int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var zombies []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat"); err == nil && isZombieOf(stat, parent) {
			zombies = append(zombies, pid)
		}
	}
	return zombies
}

// isZombieOf parses proc_pid_stat(5): pid, (name), state, parent. The name may contain any
// character.
func isZombieOf(stat []byte, parent int) bool {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return false
	}
	fields := bytes.Fields(stat[end+1:])
	return len(fields) > 1 && string(fields[0]) == "Z" && string(fields[1]) == strconv.Itoa(parent)
}
