package artifacts

import (
	"context"
	"io"
	"path/filepath"
)

// latestSuite is a release later than the nodes' own: its QEMU needs a quarter less of the processor for
// the same emulated work, and its stunnel is that of the images (hack/images/Dockerfile).
const latestSuite = "trixie"

const emulatorKind = "emulator"

func emulatorPackages() []string { return []string{"qemu-system-x86"} }

// Emulator is QEMU in an extracted root folder.
type Emulator struct {
	root string
}

// Emulator extracts QEMU with all it needs, so that this machine's own is neither needed nor
// changed.
func (m Maker) Emulator(ctx context.Context, notes io.Writer) (Emulator, bool, error) {
	root, made, err := m.extracted(ctx, notes, emulatorKind, latestSuite, emulatorPackages())
	if err != nil {
		return Emulator{}, false, err
	}
	return Emulator{root: root}, made, nil
}

// Command returns the command that runs QEMU, without QEMU's own arguments.
func (e Emulator) Command() []string {
	command := Command(e.root, "usr/bin/qemu-system-x86_64")
	for _, firmware := range []string{"qemu", "seabios"} {
		command = append(command, "-L", filepath.Join(e.root, "usr", "share", firmware))
	}
	return command
}
