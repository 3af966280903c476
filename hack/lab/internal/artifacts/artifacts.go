// Package artifacts makes what every lab starts from, and what no lab changes:
// the Kubernetes programs, the nodes' file system and kernel, and the root
// folder of tools that would start services if they were installed.
package artifacts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gnuthought.com/efs-stunnel/hack/lab/internal/cache"
)

// Maker makes artifacts, or finds them in the cache.
type Maker struct {
	Cache  cache.Cache
	Source string // the folder hack/lab of the repository
	Mirror string // address of a Debian mirror with every release used here; "" = mmdebstrap's default
	// Kubernetes is the version of the cluster's programs, as 1.34; "" = the one of components/go.mod.
	Kubernetes string
}

// NewMaker finds the source folder above the running program or the working
// folder, and takes the mirror from LAB_DEBIAN_MIRROR, and the version of Kubernetes from LAB_KUBERNETES.
func NewMaker() (Maker, error) {
	c, err := cache.Default()
	if err != nil {
		return Maker{}, err
	}
	source, err := findSource()
	if err != nil {
		return Maker{}, err
	}
	return Maker{Cache: c, Source: source, Mirror: os.Getenv("LAB_DEBIAN_MIRROR"), Kubernetes: os.Getenv("LAB_KUBERNETES")}, nil
}

func findSource() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for _, start := range []string{filepath.Dir(exe), wd} {
		for dir := start; ; dir = filepath.Dir(dir) {
			source := filepath.Join(dir, "hack", "lab")
			if _, err := os.Stat(filepath.Join(source, "components", "go.mod")); err == nil {
				return source, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", errors.New("finding the repository: neither the lab program nor the working folder is inside a checkout of efs-stunnel")
}
