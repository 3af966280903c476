package artifacts

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/cache"
	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
)

const (
	debianSuite = "bookworm"
	nodeKind    = "node"
	toolsKind   = "tools"
)

// nodeImageSize is the nodes' disk as the guest sees it; holes take no room.
const nodeImageSize = "8G"

// nodeInit is the first program of a node. What differs between nodes, and
// everything that is likely to change, comes from the two read-only disks. The
// initrd has waited for the system's disk only. When init ends, the kernel
// panics, and so ends a machine whose disks do not come within a minute.
const nodeInit = `#!/bin/sh
set -e
tries=0
until [ -b /dev/vdb ] && [ -b /dev/vdc ]; do
	tries=$((tries + 1))
	[ $((tries % 50)) -ne 0 ] || echo "lab: waiting for the disks of programs and configuration"
	[ "$tries" -lt 600 ] || exit 1
	sleep 0.1
done
mount -t ext4 -o ro,noload /dev/vdb /lab/programs
mount -t ext4 -o ro,noload /dev/vdc /lab/config
cp -a /lab/config/etc/. /etc/
exec /bin/busybox init
`

func nodePackages() []string {
	return []string{
		"busybox-static", "ca-certificates", "conntrack", "containerd", "containernetworking-plugins", "crun",
		"ethtool", "iproute2", "iptables", "kmod", "linux-image-cloud-amd64", "mount", "nfs-common",
		"openssh-server", "procps", "runc", "socat",
	}
}

// NodeImage has the files that a node boots from.
type NodeImage struct {
	Disk, Kernel, Initrd string
}

// NodeImage makes the nodes' file system from Debian packages.
func (m Maker) NodeImage(ctx context.Context, notes io.Writer) (NodeImage, bool, error) {
	packages := strings.Join(nodePackages(), ",")
	dir, made, err := m.Cache.Folder(ctx, nodeKind, m.nodeKey(), func(ctx context.Context, out string) error {
		root := filepath.Join(out, "root")
		if err := m.mmdebstrap(ctx, notes, "minbase", debianSuite, packages, root); err != nil {
			return err
		}
		return finishNodeImage(ctx, root, out)
	})
	if err != nil {
		return NodeImage{}, false, fmt.Errorf("making the nodes' file system: %w", err)
	}
	return NodeImage{
		Disk:   filepath.Join(dir, "disk.img"),
		Kernel: filepath.Join(dir, "vmlinuz"),
		Initrd: filepath.Join(dir, "initrd.img"),
	}, made, nil
}

func (m Maker) nodeKey() string {
	return cache.Key(debianSuite, strings.Join(nodePackages(), ","), nodeInit, nodeImageSize, m.Mirror)
}

func finishNodeImage(ctx context.Context, root, out string) error {
	for _, name := range []string{"vmlinuz", "initrd.img"} {
		if err := moveOne(filepath.Join(root, "boot", name+"-*"), filepath.Join(out, name)); err != nil {
			return err
		}
	}
	for _, dir := range []string{"lab/programs", "lab/config"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return fmt.Errorf("making mount points: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "sbin", "lab-init"), []byte(nodeInit), 0o755); err != nil {
		return fmt.Errorf("writing the nodes' init: %w", err)
	}
	if err := FileSystem(ctx, root, filepath.Join(out, "disk.img"), nodeImageSize); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

func moveOne(pattern, to string) error {
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		return fmt.Errorf("want one file %s, found %v", pattern, found)
	}
	if err := os.Rename(found[0], to); err != nil {
		return fmt.Errorf("taking the kernel: %w", err)
	}
	return nil
}

// ToolsRoot extracts Debian packages into a folder, without running or
// installing anything: their services must not start on this machine.
func (m Maker) ToolsRoot(ctx context.Context, notes io.Writer, packages []string) (string, bool, error) {
	return m.extracted(ctx, notes, toolsKind, latestSuite, packages)
}

func (m Maker) extracted(ctx context.Context, notes io.Writer, kind, suite string, packages []string) (string, bool, error) {
	list := strings.Join(packages, ",")
	dir, made, err := m.Cache.Folder(ctx, kind, m.extractedKey(suite, packages), func(ctx context.Context, out string) error {
		return m.mmdebstrap(ctx, notes, "extract", suite, list, filepath.Join(out, "root"))
	})
	if err != nil {
		return "", false, fmt.Errorf("extracting Debian packages %s: %w", list, err)
	}
	return filepath.Join(dir, "root"), made, nil
}

func (m Maker) extractedKey(suite string, packages []string) string {
	return cache.Key(suite, strings.Join(packages, ","), m.Mirror)
}

// systemPath is the PATH of Debian's own programs. mmdebstrap starts some for each package, and versions of them
// that a developer has before these in PATH may take seconds to start.
const systemPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// documentation lists folders that no node needs. Filters of paths would have mmdebstrap start a Python program for each package.
func documentation() []string {
	return []string{"usr/share/doc", "usr/share/man", "usr/share/locale"}
}

func (m Maker) mmdebstrap(ctx context.Context, notes io.Writer, variant, suite, packages, target string) error {
	args := []string{"--variant=" + variant, "--include=" + packages, suite, target}
	if m.Mirror != "" {
		args = append(args, m.Mirror)
	}
	program := exec.CommandContext(ctx, "mmdebstrap", args...)
	program.Env = append(os.Environ(), "PATH="+systemPath)
	if err := host.RunCommand(program, notes); err != nil {
		return err
	}
	for _, dir := range documentation() {
		if err := os.RemoveAll(filepath.Join(target, dir)); err != nil {
			return fmt.Errorf("removing documentation: %w", err)
		}
	}
	return nil
}
