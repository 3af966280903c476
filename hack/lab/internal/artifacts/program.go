package artifacts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/cache"
)

const multiarch = "x86_64-linux-gnu"

// Command calls a program of an extracted root with that root's own loader and libraries, before
// the program's own arguments. Further folders of libraries are paths inside the root, as program
// is.
func Command(root, program string, further ...string) []string {
	var folders []string
	for _, folder := range append([]string{"lib/" + multiarch, "usr/lib/" + multiarch}, further...) {
		folders = append(folders, filepath.Join(root, folder))
	}
	return []string{Loader(root), "--library-path", strings.Join(folders, ":"), filepath.Join(root, program)}
}

// Loader returns the dynamic loader of an extracted root: in lib up to Debian 12, in usr/lib later. It
// is not the link in lib64: that one may be absolute and lead outside.
func Loader(root string) string {
	name := filepath.Join(multiarch, "ld-linux-x86-64.so.2")
	older := filepath.Join(root, "lib", name)
	if _, err := os.Stat(older); err == nil {
		return older
	}
	return filepath.Join(root, "usr", "lib", name)
}

// scripts makes a folder with one script for each program of an extracted root, by name, which runs it as
// Command does.
func (m Maker) scripts(ctx context.Context, kind, root string, programs map[string]string) (string, error) {
	texts := map[string]string{}
	for name, program := range programs {
		texts[name] = fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", strings.Join(Command(root, program), " "))
	}
	dir, _, err := m.Cache.Folder(ctx, kind, cache.Key(fmt.Sprint(texts)), func(_ context.Context, out string) error {
		for name, text := range texts {
			if err := os.WriteFile(filepath.Join(out, name), []byte(text), 0o755); err != nil {
				return fmt.Errorf("writing the script: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("making programs that run %s: %w", kind, err)
	}
	return dir, nil
}
