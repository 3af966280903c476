//go:build !linux

package cluster

import "syscall"

// killWithParent does nothing: other kernels cannot, so a killed test leaves its programs running.
func killWithParent(*syscall.SysProcAttr) {}
