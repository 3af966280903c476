package artifacts

import (
	"context"
	"io"
)

// Prometheus makes a folder with the programs prometheus and promtool, which run those of the extracted
// package.
func (m Maker) Prometheus(ctx context.Context, notes io.Writer) (string, error) {
	root, _, err := m.extracted(ctx, notes, "prometheus-package", debianSuite, []string{"prometheus"})
	if err != nil {
		return "", err
	}
	return m.scripts(ctx, "prometheus", root, map[string]string{
		"prometheus": "usr/bin/prometheus",
		"promtool":   "usr/bin/promtool",
	})
}
