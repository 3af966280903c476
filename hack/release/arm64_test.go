package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// arm64Variable names a program that runs programs for arm64: QEMU's emulation of single programs. The test with
// it is part of "make arm64" only: it takes minutes.
const arm64Variable = "EFS_STUNNEL_ARM64"

// TestArm64 makes the images of a release for arm64, runs what they contain, and then the product's tests for
// arm64 with the image's stunnel. What the programs call is this machine's kernel.
func TestArm64(t *testing.T) {
	emulator := os.Getenv(arm64Variable)
	if emulator == "" {
		t.Skip("want " + arm64Variable + ": make arm64 sets it")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const version, architecture = "v0.0.1", "arm64"
	b := newBuilder(t, root, "")
	b.clone(root, version)
	released := b.release(version, architecture)
	for _, i := range allImages() {
		t.Run(i.name, func(t *testing.T) {
			folder := withEmulator(t, released[i.name], emulator)
			argument, want := "version", version
			for _, program := range i.programs {
				got, err := exec.CommandContext(t.Context(), "chroot", folder, "/emulator", "/usr/local/bin/"+program, argument).CombinedOutput()
				if err != nil || !strings.Contains(string(got), want) {
					t.Errorf("%s %s says %s (%v), want %s", program, argument, got, err, want)
				}
				argument, want = "--help", "Usage"
			}
		})
	}
	folder := withEmulator(t, released["efs-stunnel"], emulator)
	t.Run("stunnel", func(t *testing.T) {
		got, err := exec.CommandContext(t.Context(), "chroot", folder, "/emulator", "/usr/local/bin/stunnel", "-version").CombinedOutput()
		if err != nil || !strings.Contains(string(got), "aarch64") || !strings.Contains(string(got), "SYSTEMD") {
			t.Errorf("stunnel -version says %s (%v), want aarch64 with socket activation", got, err)
		}
	})
	stunnel := "STUNNEL_PATH=" + wrapper(t, folder, emulator)
	t.Run("tests", func(t *testing.T) {
		packages := slices.DeleteFunc(strings.Fields(b.output("go", "-C", b.source, "list", "./cmd/...", "./pkg/...")), isNotEmulated)
		b.withT(t).test([]string{stunnel, "GOARCH=" + architecture, "CGO_ENABLED=0"}, append([]string{"-exec=" + emulator}, packages...)...)
	})
	t.Run("tests of this machine's supervisor", func(t *testing.T) {
		// The emulator's own memory is above the limit of one test, and an emulated stunnel takes so long for a
		// connection that more than one is in use when a hand-over ends it.
		const unfit = "^(TestMemoryLimitEndsOneStunnelOnly|TestHandOverRefusesNoConnection)$"
		b.withT(t).test([]string{stunnel}, "-skip="+unfit, "./pkg/node/supervise")
	})
}

// isNotEmulated reports whether the tests of a package need what the emulation of single programs lacks: they run
// themselves again, which only the kernel could have emulated, or ask it for connections (sock_diag).
func isNotEmulated(path string) bool {
	return slices.ContainsFunc([]string{
		"/cmd/nodeagent-supervise", "/pkg/program/buildinfo", "/pkg/node/agent", "/pkg/node/fdstore", "/pkg/node/probe", "/pkg/node/sockets", "/pkg/node/supervise",
	}, func(suffix string) bool { return strings.HasSuffix(path, suffix) })
}

// test runs tests of the product.
func (b *builder) test(variables []string, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), "go", append([]string{"test", "-count=1", "-timeout=1h"}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = b.source, append(os.Environ(), variables...), b.Output(), b.Output()
	b.check(cmd.Run())
}

// withEmulator gives the folder with an image's files and the emulator.
func withEmulator(t *testing.T, image v1.Image, emulator string) string {
	t.Helper()
	folder := unpack(t, image)
	addNull(t, folder)
	program, err := os.ReadFile(emulator)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "emulator"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// wrapper returns a program of this machine that runs the stunnel of an image, with its libraries.
func wrapper(t *testing.T, folder, emulator string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stunnel")
	text := fmt.Sprintf("#!/bin/sh\nexec %q -L %q %q \"$@\"\n", emulator, folder, filepath.Join(folder, "usr/local/bin/stunnel"))
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}
