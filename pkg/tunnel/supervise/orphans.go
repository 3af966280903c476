package supervise

import (
	"bytes"
	"os"
	"strconv"
)

// deadChildren are the processes that have ended and whose parent has not asked how.
func deadChildren(parent int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var dead []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat"); err == nil && isDeadChild(stat, parent) {
			dead = append(dead, pid)
		}
	}
	return dead
}

// isDeadChild reads proc(5)'s stat: pid, (name), state, parent. The name may hold anything.
func isDeadChild(stat []byte, parent int) bool {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return false
	}
	fields := bytes.Fields(stat[end+1:])
	return len(fields) > 1 && string(fields[0]) == "Z" && string(fields[1]) == strconv.Itoa(parent)
}
