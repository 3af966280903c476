package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// programs maps a program that the lab runs to its Debian package.
func programs() map[string]string {
	return map[string]string{
		"ip":         "iproute2",
		"mke2fs":     "e2fsprogs",
		"mkfs.xfs":   "xfsprogs",
		"mmdebstrap": "mmdebstrap",
		"qemu-img":   "qemu-utils",
		"ssh":        "openssh-client",
		"ssh-keygen": "openssh-client",
		"xz":         "xz-utils",
	}
}

// InstallPackages installs the Debian packages of programs that are missing,
// and returns their names.
func InstallPackages(ctx context.Context, notes io.Writer) ([]string, error) {
	return install(ctx, notes, programs())
}

// InstallBrowser installs a headless browser if it is missing, and returns its
// path. It is no part of a lab: its packages have hundreds of megabytes.
func InstallBrowser(ctx context.Context, notes io.Writer) (string, error) {
	return installed(ctx, notes, "chromium", map[string]string{"chromium": "chromium"})
}

// InstallBuildah installs what builds images from a Dockerfile if it is missing,
// and mmdebstrap, which makes bases for them without a registry. It returns
// buildah's path. Labs have their images without it.
func InstallBuildah(ctx context.Context, notes io.Writer) (string, error) {
	return installed(ctx, notes, "buildah", map[string]string{"buildah": "buildah", "mmdebstrap": "mmdebstrap"})
}

// InstallArm64 installs what runs programs for arm64 if it is missing, and returns
// its path.
func InstallArm64(ctx context.Context, notes io.Writer) (string, error) {
	return installed(ctx, notes, "qemu-aarch64-static", map[string]string{"qemu-aarch64-static": "qemu-user-static"})
}

// InstallStrace installs what counts the system calls of a process if it is missing,
// and returns its path.
func InstallStrace(ctx context.Context, notes io.Writer) (string, error) {
	return installed(ctx, notes, "strace", map[string]string{"strace": "strace"})
}

// installed installs programs from their packages, and returns the path of one.
func installed(ctx context.Context, notes io.Writer, program string, packages map[string]string) (string, error) {
	if _, err := install(ctx, notes, packages); err != nil {
		return "", err
	}
	return exec.LookPath(program)
}

func install(ctx context.Context, notes io.Writer, programs map[string]string) ([]string, error) {
	missing := missingPackages(programs, exec.LookPath)
	if len(missing) == 0 {
		return nil, nil
	}
	names := strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, fmt.Errorf("the packages %s are missing, and this machine has no apt-get: install their programs manually", names)
	}
	if err := aptGet(ctx, notes, "update"); err != nil {
		return nil, fmt.Errorf("the packages %s are missing: %w: check the machine's package sources", names, err)
	}
	install := append([]string{"install", "--yes", "--no-install-recommends"}, missing...)
	if err := aptGet(ctx, notes, install...); err != nil {
		return nil, fmt.Errorf("installing %s: %w: install them manually and try again", names, err)
	}
	return missing, nil
}

func missingPackages(programs map[string]string, lookPath func(string) (string, error)) []string {
	var missing []string
	for program, pkg := range programs {
		if _, err := lookPath(program); err != nil {
			missing = append(missing, pkg)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

func aptGet(ctx context.Context, notes io.Writer, args ...string) error {
	// Wait for another run of apt-get instead of failing.
	args = append([]string{"-o", "DPkg::Lock::Timeout=300", "-q"}, args...)
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return RunCommand(cmd, notes)
}
