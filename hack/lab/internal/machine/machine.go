// Package machine runs the lab's nodes: small QEMU machines with a Debian
// kernel, containerd, kubelet, kube-proxy and the kernel's NFS client.
package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// Machine is one node and the artifacts that it boots from.
type Machine struct {
	Lab          state.Lab
	Node         state.Node
	MemoryMiB    int
	CPUs         int
	Emulator     artifacts.Emulator
	Image        artifacts.NodeImage
	ProgramsDisk string
	Accelerator  Accelerator
	PauseImage   string // what containerd starts for each pod
}

// GuestLogs returns the node's programs that log to the machine's serial ports, in the order of the ports.
func GuestLogs() []string { return []string{"containerd", "kubelet", "kube-proxy"} }

// Console is the name of the log of a node's kernel and boot.
const Console = "console"

// LogFile returns the file of one of a node's logs: Console, or one of GuestLogs. Each boot of the node
// appends to it.
func LogFile(lab state.Lab, n state.Node, log string) string { return lab.LogFile(n.Name + "-" + log) }

func (m Machine) path(elem ...string) string {
	return m.Lab.Path(append([]string{"nodes", m.Node.Name}, elem...)...)
}

// Prepare makes the node's disks. An existing system disk is kept, so that the node keeps its data when it
// is stopped and started.
func (m Machine) Prepare(ctx context.Context) error {
	if err := os.MkdirAll(m.path(), 0o700); err != nil {
		return fmt.Errorf("preparing node %s: %w", m.Node.Name, err)
	}
	if err := makeKeys(ctx, m.Lab); err != nil {
		return fmt.Errorf("preparing node %s: %w", m.Node.Name, err)
	}
	if err := m.writeConfigDisk(ctx); err != nil {
		return fmt.Errorf("preparing node %s: %w", m.Node.Name, err)
	}
	if err := m.makeSystemDisk(ctx); err != nil {
		return fmt.Errorf("preparing node %s: %w", m.Node.Name, err)
	}
	return nil
}

func (m Machine) makeSystemDisk(ctx context.Context) error {
	disk := m.path("system.qcow2")
	if _, err := os.Stat(disk); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	tmp := disk + ".tmp"
	if err := host.Run(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", m.Image.Disk, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, disk)
}

// Spec returns the machine as a process.
func (m Machine) Spec() proc.Spec {
	return proc.Spec{
		Name:    m.Node.Part(),
		Args:    m.args(),
		LogFile: m.Lab.LogFile(m.Node.Name),
		NetNS:   m.Lab.NetNSPath(),
		Address: m.Node.Address(),
	}
}

// kernelParameters configure the node's kernel. When a node cannot recover, its machine must end or log
// nothing more, because both are recognized as a failure, unlike errors that are logged forever.
func (m Machine) kernelParameters() string {
	return strings.Join(append([]string{
		"console=ttyS0", "root=/dev/vda", "rw", "init=/sbin/lab-init",
		"panic=-1", "oops=panic",
		"net.ifnames=0", // the initrd would rename eth0
		"mitigations=off",
		// On a busy host an emulated timer is late, and the kernel's test of it panics. Under KVM the
		// kernel skips the test.
		"no_timer_check",
		// A virtual processor that the host does not schedule, or whose timer was lost, seems to be
		// locked up or to stall RCU, and the kernel would log that forever.
		"nowatchdog", "rcupdate.rcu_cpu_stall_suppress=1",
	}, m.Accelerator.kernelParameters()...), " ")
}

func (m Machine) args() []string {
	args := append(m.Emulator.Command(),
		"-name", m.Node.Name,
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-m", strconv.Itoa(m.MemoryMiB), "-smp", strconv.Itoa(m.CPUs),
		"-kernel", m.Image.Kernel, "-initrd", m.Image.Initrd,
		"-append", m.kernelParameters(),
		"-drive", "file="+m.path("system.qcow2")+",if=virtio,format=qcow2,cache=unsafe",
		"-drive", "file="+m.ProgramsDisk+",if=virtio,format=raw,readonly=on",
		"-drive", "file="+m.path("config.img")+",if=virtio,format=raw,readonly=on",
		"-netdev", "tap,id=net0,ifname="+m.Node.Tap()+",script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=net0,romfile=,mac="+m.Node.MAC(),
		"-device", "virtio-rng-pci",
		"-chardev", "file,id=console,append=on,path="+LogFile(m.Lab, m.Node, Console), "-serial", "chardev:console",
		"-device", "virtio-serial-pci",
	)
	for i, program := range GuestLogs() {
		id := fmt.Sprintf("log%d", i)
		args = append(args,
			"-chardev", "file,id="+id+",append=on,path="+LogFile(m.Lab, m.Node, program),
			"-device", "virtserialport,chardev="+id+",name="+program)
	}
	return append(args, m.Accelerator.args()...)
}
