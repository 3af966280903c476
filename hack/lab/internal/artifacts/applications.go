package artifacts

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/cache"
)

func applicationPackages() []string { return []string{"git", "postgresql", "sqlite3"} }

// ApplicationsRoot makes the root folder of an image with programs that store data as users' applications do: a small
// Debian, because they need its users, its shell and its libraries.
func (m Maker) ApplicationsRoot(ctx context.Context, notes io.Writer) (string, error) {
	packages := strings.Join(applicationPackages(), ",")
	dir, _, err := m.Cache.Folder(ctx, "applications", cache.Key(debianSuite, packages, m.Mirror), func(ctx context.Context, out string) error {
		return m.mmdebstrap(ctx, notes, "minbase", debianSuite, packages, filepath.Join(out, "root"))
	})
	if err != nil {
		return "", fmt.Errorf("making the root of the applications: %w", err)
	}
	return filepath.Join(dir, "root"), nil
}
