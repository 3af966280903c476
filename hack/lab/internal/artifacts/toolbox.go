package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/cache"
	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
)

const (
	stunnel = "/usr/bin/stunnel4"
	loader  = "/lib64/ld-linux-x86-64.so.2"
	// libgcc is loaded at run time when a thread ends, so no tool lists it.
	libgcc = "/lib/x86_64-linux-gnu/libgcc_s.so.1"
)

// ToolboxRoot makes the root folder of the lab's general-purpose pod image:
// busybox with all its applets, and stunnel with the libraries it needs. The
// packages alone would bring ten times as much, which emulated nodes unpack
// slowly.
func (m Maker) ToolboxRoot(ctx context.Context, notes io.Writer) (string, bool, error) {
	source, err := m.toolboxPackages(ctx, notes)
	if err != nil {
		return "", false, err
	}
	dir, made, err := m.Cache.Folder(ctx, "toolbox", cache.Key(source, "1"), func(ctx context.Context, out string) error {
		return toolbox(ctx, source, filepath.Join(out, "root"))
	})
	if err != nil {
		return "", false, fmt.Errorf("making the toolbox image's root: %w", err)
	}
	return filepath.Join(dir, "root"), made, nil
}

func (m Maker) toolboxPackages(ctx context.Context, notes io.Writer) (string, error) {
	source, _, err := m.extracted(ctx, notes, toolboxKind, latestSuite, toolboxPackages())
	return source, err
}

const toolboxKind = "toolbox-packages"

func toolboxPackages() []string { return []string{"busybox-static", "libgcc-s1", "stunnel4"} }

// Stunnel makes a program that runs stunnel out of the extracted packages, and returns its path.
func (m Maker) Stunnel(ctx context.Context, notes io.Writer) (string, error) {
	source, err := m.toolboxPackages(ctx, notes)
	if err != nil {
		return "", err
	}
	dir, err := m.scripts(ctx, "stunnel", source, map[string]string{"stunnel": stunnel})
	return filepath.Join(dir, "stunnel"), err
}

func toolbox(ctx context.Context, source, target string) error {
	files, err := stunnelFiles(ctx, source)
	if err != nil {
		return err
	}
	for _, f := range append(files, "/bin/busybox") {
		if err := copyExecutable(source, f, filepath.Join(target, f)); err != nil {
			return err
		}
	}
	if err := linkApplets(ctx, filepath.Join(target, "bin")); err != nil {
		return err
	}
	return makeFolders(target)
}

var resolved = regexp.MustCompile(`=> (\S+) \(`)

// stunnelFiles asks the extracted loader itself which libraries stunnel loads.
func stunnelFiles(ctx context.Context, source string) ([]string, error) {
	var out strings.Builder
	command := slices.Insert(Command(source, stunnel), 1, "--list")
	if err := host.RunTo(ctx, &out, command[0], command[1:]...); err != nil {
		return nil, err
	}
	files := []string{stunnel, loader, libgcc}
	for _, found := range resolved.FindAllStringSubmatch(out.String(), -1) {
		inside, ok := strings.CutPrefix(found[1], source)
		if !ok {
			return nil, fmt.Errorf("stunnel would load %s from outside the extracted packages", found[1])
		}
		files = append(files, inside)
	}
	return files, nil
}

// copyExecutable copies a file of an extracted root, which Debian 13 has below /usr.
func copyExecutable(root, file, to string) error {
	from := filepath.Join(root, file)
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		from = filepath.Join(root, "usr", file)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	// An absolute link in an extracted root means a file of that root.
	if link, err := os.Readlink(from); err == nil && filepath.IsAbs(link) {
		from = filepath.Join(root, link)
	}
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	return nil
}

func linkApplets(ctx context.Context, bin string) error {
	var list strings.Builder
	if err := host.RunTo(ctx, &list, filepath.Join(bin, "busybox"), "--list"); err != nil {
		return err
	}
	for applet := range strings.FieldsSeq(list.String()) {
		if applet == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(bin, applet)); err != nil {
			return fmt.Errorf("linking busybox: %w", err)
		}
	}
	return nil
}

func makeFolders(target string) error {
	for dir, mode := range map[string]os.FileMode{"tmp": 0o777 | os.ModeSticky, "etc": 0o755, "root": 0o700} {
		path := filepath.Join(target, dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("making folders: %w", err)
		}
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("making folders: %w", err)
		}
	}
	const passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
	if err := os.WriteFile(filepath.Join(target, "etc", "passwd"), []byte(passwd), 0o644); err != nil {
		return fmt.Errorf("making folders: %w", err)
	}
	return nil
}
