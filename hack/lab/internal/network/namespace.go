// Package network makes and removes a lab's network namespace, its bridge and
// its taps, and runs code inside the namespace. Nothing in it has a route out.
package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// Up makes the namespace with loopback and the bridge; what is there is kept.
func Up(ctx context.Context, lab state.Lab) error {
	if err := namespaceUp(lab); err != nil {
		return fmt.Errorf("making network namespace %s: %w", lab.NetNS(), err)
	}
	if err := Do(lab, allowForwarding); err != nil {
		return err
	}
	if err := ip(ctx, lab, "link", "set", "lo", "up"); err != nil {
		return err
	}
	return bridgeUp(ctx, lab)
}

func namespaceUp(lab state.Lab) error {
	if Exists(lab) {
		return nil
	}
	if err := remove(lab); err != nil {
		return err // what is there is the leftover of a removal that was cut short
	}
	return create(lab)
}

// create does what `ip netns add` does, but for the mount of the whole folder
// of namespaces on itself, which nobody removes again.
func create(lab state.Lab) error {
	if err := os.MkdirAll(filepath.Dir(lab.NetNSPath()), 0o755); err != nil {
		return fmt.Errorf("making the folder of namespaces: %w", err)
	}
	if err := os.WriteFile(lab.NetNSPath(), nil, 0o444); err != nil {
		return fmt.Errorf("making the namespace's file: %w", err)
	}
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a namespace: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", lab.NetNSPath(), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("naming the namespace: %w", err)
		}
		return nil
	})
}

func remove(lab state.Lab) error {
	err := unix.Unmount(lab.NetNSPath(), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting %s: %w", lab.NetNSPath(), err)
	}
	if err := os.Remove(lab.NetNSPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the namespace's file: %w", err)
	}
	return nil
}

func bridgeUp(ctx context.Context, lab state.Lab) error {
	if !linkExists(ctx, lab, state.Bridge) {
		if err := ip(ctx, lab, "link", "add", state.Bridge, "type", "bridge"); err != nil {
			return err
		}
	}
	for _, prefix := range []string{state.BridgePrefix, state.MetadataAddress + "/32"} {
		if err := ip(ctx, lab, "address", "replace", prefix, "dev", state.Bridge); err != nil {
			return err
		}
	}
	return ip(ctx, lab, "link", "set", state.Bridge, "up")
}

// allowForwarding lets pods of one node reach those of another through the
// bridge's address, without telling the nodes of shorter ways.
func allowForwarding() error {
	for file, value := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":                  "1",
		"/proc/sys/net/ipv4/conf/all/send_redirects":     "0",
		"/proc/sys/net/ipv4/conf/default/send_redirects": "0",
		// Two local processes may talk to each other over a mount target's address.
		"/proc/sys/net/ipv4/conf/all/rp_filter": "0",
	} {
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			return fmt.Errorf("setting up the lab's network: %w", err)
		}
	}
	return nil
}

// Down removes the namespace and with it every interface that is in it.
func Down(lab state.Lab) error {
	if err := remove(lab); err != nil {
		return fmt.Errorf("removing network namespace %s: %w", lab.NetNS(), err)
	}
	return nil
}

// Exists tells whether the lab's namespace is there. Its file alone may be a
// leftover, which nobody can enter.
func Exists(lab state.Lab) bool { return Do(lab, func() error { return nil }) == nil }

// Processes lists who runs in the namespace. It is the lab's own, so whoever
// is in it was started by the lab.
func Processes(ctx context.Context, lab state.Lab) ([]int, error) {
	if !Exists(lab) {
		return nil, nil
	}
	var out strings.Builder
	if err := host.RunTo(ctx, &out, "ip", "netns", "pids", lab.NetNS()); err != nil {
		return nil, fmt.Errorf("listing processes of network namespace %s: %w", lab.NetNS(), err)
	}
	var pids []int
	for field := range strings.FieldsSeq(out.String()) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("listing processes of network namespace %s: %w", lab.NetNS(), err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// AddNode makes the node's tap and the route to its pods.
func AddNode(ctx context.Context, lab state.Lab, n state.Node) error {
	if !linkExists(ctx, lab, n.Tap()) {
		if err := ip(ctx, lab, "tuntap", "add", "dev", n.Tap(), "mode", "tap"); err != nil {
			return err
		}
	}
	if err := ip(ctx, lab, "link", "set", n.Tap(), "master", state.Bridge, "up"); err != nil {
		return err
	}
	return ip(ctx, lab, "route", "replace", n.PodCIDR(), "via", n.Address())
}

// RemoveNode removes the node's tap and route.
func RemoveNode(ctx context.Context, lab state.Lab, n state.Node) error {
	if !linkExists(ctx, lab, n.Tap()) {
		return nil
	}
	routes := ip(ctx, lab, "route", "flush", n.PodCIDR())
	return errors.Join(routes, ip(ctx, lab, "link", "delete", n.Tap()))
}

func linkExists(ctx context.Context, lab state.Lab, name string) bool {
	return ip(ctx, lab, "link", "show", name) == nil
}

func ip(ctx context.Context, lab state.Lab, args ...string) error {
	return host.Run(ctx, "ip", slices.Concat([]string{"-n", lab.NetNS()}, args)...)
}

// Do runs fn inside the namespace: sockets that it opens belong there.
func Do(lab state.Lab, fn func() error) error {
	return onThread(func() error {
		if err := Enter(lab); err != nil {
			return err
		}
		return fn()
	})
}

// onThread runs fn on a thread of its own. The thread is never unlocked, so
// it ends with the goroutine and takes its namespace along.
func onThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- fn()
	}()
	return <-result
}

// Enter moves the calling thread into the namespace. The caller has locked it.
func Enter(lab state.Lab) error {
	ns, err := os.Open(lab.NetNSPath())
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("lab %s is %w", lab.Name, state.ErrNotUp)
	}
	if err != nil {
		return fmt.Errorf("opening network namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering network namespace %s: %w", lab.NetNS(), err)
	}
	return nil
}

// RunInside runs a program inside the namespace to its end.
func RunInside(ctx context.Context, lab state.Lab, command []string) error {
	return Do(lab, func() error { return host.Run(ctx, command[0], command[1:]...) })
}
