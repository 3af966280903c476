package cluster

import "syscall"

// dieWithUs has the kernel kill a child when the thread that starts it is gone.
func dieWithUs(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
