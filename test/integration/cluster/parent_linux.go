package cluster

import "syscall"

// killWithParent has the kernel kill a child when the thread that has started it ends.
func killWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
