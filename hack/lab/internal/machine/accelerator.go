package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/cache"
)

// Accelerator is the way in which QEMU runs the guest's instructions.
type Accelerator string

// The two ways.
const (
	KVM      Accelerator = "kvm" // the processor itself
	Emulated Accelerator = "tcg" // software
)

func (a Accelerator) args() []string {
	if a == KVM {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	// One thread for each virtual processor, and a buffer that holds the translated code of a whole
	// system, which would be translated repeatedly otherwise. Features that only cost time in software
	// are off: a fifth level of page tables, string instructions, which are loops over bytes here, and
	// the switching of the kernel's access to user memory.
	return []string{"-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off,erms=off,fsrm=off,smap=off"}
}

// kernelParameters save an emulated kernel work. Without the time stamp counter, its only clock is a
// device that a processor reads under a lock of the whole machine. And Go's runtime often sleeps for
// microseconds, each of which is an interrupt unless timers wait for the tick.
func (a Accelerator) kernelParameters() []string {
	if a == KVM {
		return nil
	}
	return []string{"highres=off", "tsc=reliable", fmt.Sprintf("tsc_early_khz=%d", counterFrequency())}
}

// trialLimit is many times what a kernel under working KVM needs for its first message.
const trialLimit = 15 * time.Second

// DetectAccelerator boots the kernel under KVM if /dev/kvm exists, because KVM may not work even so. The
// result is cached until this machine's next boot.
func DetectAccelerator(ctx context.Context, c cache.Cache, emulator artifacts.Emulator, image artifacts.NodeImage) (Accelerator, error) {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return Emulated, nil //nolint:nilerr // without the device there is no KVM
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("trying KVM: %w", err)
	}
	dir, _, err := c.Folder(ctx, "accelerator", cache.Key(string(boot), image.Kernel, strings.Join(emulator.Command(), " ")), func(ctx context.Context, dir string) error {
		return os.WriteFile(dir+"/answer", []byte(tryKVM(ctx, emulator, image)), 0o644)
	})
	if err != nil {
		return "", fmt.Errorf("trying KVM: %w", err)
	}
	answer, err := os.ReadFile(dir + "/answer")
	if err != nil {
		return "", fmt.Errorf("trying KVM: %w", err)
	}
	return Accelerator(answer), nil
}

func tryKVM(ctx context.Context, emulator artifacts.Emulator, image artifacts.NodeImage) Accelerator {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	// The kernel finds no disk, panics and ends the machine. A second processor
	// is where half-working KVMs fail.
	args := append(emulator.Command(),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-m", "256", "-smp", "2",
		"-kernel", image.Kernel, "-append", "console=ttyS0 panic=-1", "-serial", "stdio")
	args = append(args, KVM.args()...)
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Linux version") {
		return Emulated
	}
	return KVM
}
