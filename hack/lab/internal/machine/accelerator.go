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

// Accelerator is how QEMU runs the guest's instructions.
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
	// One thread for each virtual processor; room for a whole system's
	// translated code, or it is translated over and over. A fifth level of page
	// tables would only make every walk in software longer.
	return []string{"-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off"}
}

// trialLimit is many times what a kernel under working KVM needs to say hello.
const trialLimit = 15 * time.Second

// DetectAccelerator boots the kernel under KVM when there is /dev/kvm, since
// the device alone promises nothing. The answer holds until the next boot.
func DetectAccelerator(ctx context.Context, c cache.Cache, image artifacts.NodeImage) (Accelerator, error) {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return Emulated, nil //nolint:nilerr // no device is an answer
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("trying KVM: %w", err)
	}
	dir, _, err := c.Folder(ctx, "accelerator", cache.Key(string(boot), image.Kernel), func(ctx context.Context, dir string) error {
		return os.WriteFile(dir+"/answer", []byte(tryKVM(ctx, image)), 0o644)
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

func tryKVM(ctx context.Context, image artifacts.NodeImage) Accelerator {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	// The kernel finds no disk, panics and ends the machine. A second processor
	// is where half-working KVMs fail.
	args := append([]string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-m", "256", "-smp", "2",
		"-kernel", image.Kernel, "-append", "console=ttyS0 panic=-1", "-serial", "stdio",
	}, KVM.args()...)
	out, err := exec.CommandContext(ctx, qemu, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Linux version") {
		return Emulated
	}
	return KVM
}
