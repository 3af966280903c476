// Package network makes and removes a lab's network namespace, its bridge and its tap devices, and
// runs code inside the namespace, from which no route leads out.
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
	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// Up makes the namespace with loopback and the bridge, or keeps what exists.
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
		return err // the file is left from a removal that was interrupted
	}
	return create(lab)
}

// create does what `ip netns add` does, except that it does not mount the folder of namespaces onto
// itself, which `ip` never undoes.
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
	if err := ip(ctx, lab, "link", "set", state.Bridge, "up"); err != nil {
		return err
	}
	for _, prefix := range []string{state.BridgeIPv6Prefix, state.MetadataIPv6 + "/128"} {
		// Without the detection of duplicates, the address can be used at once.
		if err := ip(ctx, lab, "address", "replace", prefix, "dev", state.Bridge, "nodad"); err != nil {
			return err
		}
	}
	return nil
}

// allowForwarding lets pods of one node reach those of another through the bridge's address, without
// redirecting the nodes to shorter routes.
func allowForwarding() error {
	for file, value := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":                  "1",
		"/proc/sys/net/ipv6/conf/all/forwarding":         "1",
		"/proc/sys/net/ipv4/conf/all/send_redirects":     "0",
		"/proc/sys/net/ipv4/conf/default/send_redirects": "0",
		// Local processes may connect to each other over a mount target's address.
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

// Exists reports whether the lab's namespace exists. Its file alone may be left from an interrupted removal, and
// cannot be entered then.
func Exists(lab state.Lab) bool { return Do(lab, func() error { return nil }) == nil }

// Processes lists the processes in the namespace, all of which the lab has started.
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

// AddNode makes the node's tap device and the route to its pods.
func AddNode(ctx context.Context, lab state.Lab, n state.Node) error {
	if !linkExists(ctx, lab, n.Tap()) {
		if err := ip(ctx, lab, "tuntap", "add", "dev", n.Tap(), "mode", "tap"); err != nil {
			return err
		}
	}
	if err := ip(ctx, lab, "link", "set", n.Tap(), "master", state.Bridge, "up"); err != nil {
		return err
	}
	return ip(ctx, lab, family(n), "route", "replace", n.PodCIDR(), "via", n.Address())
}

// family returns the option of ip for the routes to a node's pods.
func family(n state.Node) string {
	if n.IPv6Only {
		return "-6"
	}
	return "-4"
}

// RemoveNode removes the node's tap device and route.
func RemoveNode(ctx context.Context, lab state.Lab, n state.Node) error {
	if !linkExists(ctx, lab, n.Tap()) {
		return nil
	}
	routes := ip(ctx, lab, family(n), "route", "flush", n.PodCIDR())
	return errors.Join(routes, ip(ctx, lab, "link", "delete", n.Tap()))
}

func linkExists(ctx context.Context, lab state.Lab, name string) bool {
	return ip(ctx, lab, "link", "show", name) == nil
}

func ip(ctx context.Context, lab state.Lab, args ...string) error {
	return host.Run(ctx, "ip", slices.Concat([]string{"-n", lab.NetNS()}, args)...)
}

// Do runs fn inside the namespace, where the sockets that it opens belong then.
func Do(lab state.Lab, fn func() error) error {
	return onThread(func() error {
		if err := Enter(lab); err != nil {
			return err
		}
		return fn()
	})
}

// onThread runs fn on a thread of its own. The thread is never unlocked, so it ends with the
// goroutine, and no other goroutine ever runs in its namespace.
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
	err := proc.EnterNetNS(lab.NetNSPath())
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("lab %s is %w", lab.Name, state.ErrNotUp)
	}
	return err
}

// RunInside runs a program inside the namespace to its end.
func RunInside(ctx context.Context, lab state.Lab, command []string) error {
	return Do(lab, func() error { return host.Run(ctx, command[0], command[1:]...) })
}
