package supervise

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Launch replaces this process by stunnel, which takes descriptor 3 as its listening socket
// (sd_listen_fds(3)). The protocol demands the process id of stunnel in LISTEN_PID, which only the
// process itself has before the exec. Launch returns only on error.
func Launch(program, file string) error {
	env := append(os.Environ(), "LISTEN_FDS=1", "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	if err := syscall.Exec(program, []string{program, file}, env); err != nil {
		return fmt.Errorf("starting %s: %w", program, err)
	}
	return nil
}
