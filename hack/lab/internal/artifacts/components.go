package artifacts

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/cache"
	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
)

const (
	componentsKind    = "components"
	kubernetesProgram = "kubernetes"
	etcdPackage       = "go.etcd.io/etcd/server/v3"
)

// Components is the folder of the Kubernetes programs and etcd.
type Components struct {
	Dir     string
	Key     string // changes with the programs
	Version string // of Kubernetes, as v1.36.3
}

// Program returns the path of one program.
func (c Components) Program(name string) string { return filepath.Join(c.Dir, name) }

// kubernetesPrograms returns the names of one program, hack/lab/components.
func kubernetesPrograms() []string {
	return []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"}
}

// Components builds the programs that hack/lab/components pins.
func (m Maker) Components(ctx context.Context, notes io.Writer) (Components, bool, error) {
	file, version, key, err := m.componentsKey(ctx)
	if err != nil {
		return Components{}, false, err
	}
	out, made, err := m.Cache.Folder(ctx, componentsKind, key, func(ctx context.Context, out string) error {
		return buildComponents(ctx, file, out, version, notes)
	})
	if err != nil {
		return Components{}, false, fmt.Errorf("building the cluster's programs: %w", err)
	}
	return Components{Dir: out, Key: key, Version: version}, made, nil
}

// componentsKey changes with the programs that the module file pins.
func (m Maker) componentsKey(ctx context.Context) (file, version, key string, err error) {
	dir := filepath.Join(m.Source, "components")
	if file, err = m.modFile(dir); err != nil {
		return "", "", "", err
	}
	mod, err := os.ReadFile(file)
	if err != nil {
		return "", "", "", fmt.Errorf("reading versions of the cluster's programs: %w", err)
	}
	if version, err = kubernetesVersion(string(mod)); err != nil {
		return "", "", "", err
	}
	main, err := os.ReadFile(filepath.Join(dir, "main.go"))
	if err != nil {
		return "", "", "", fmt.Errorf("reading the cluster's programs: %w", err)
	}
	var goVersion strings.Builder
	if err := host.RunTo(ctx, &goVersion, "go", "env", "GOVERSION"); err != nil {
		return "", "", "", err
	}
	flags := strings.Join(append(compilerFlags(), linkerFlags(version)), " ")
	return file, version, version + "-" + cache.Key(string(mod), string(main), goVersion.String(), flags), nil
}

// modFile returns the module file that pins the wanted version of Kubernetes.
func (m Maker) modFile(dir string) (string, error) {
	if m.Kubernetes == "" {
		return filepath.Join(dir, "go.mod"), nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "kubernetes-*.mod"))
	if err != nil {
		return "", fmt.Errorf("listing versions of Kubernetes: %w", err)
	}
	var versions []string
	for _, file := range files {
		version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "kubernetes-"), ".mod")
		if version == m.Kubernetes {
			return file, nil
		}
		versions = append(versions, version)
	}
	return "", fmt.Errorf("version %q of Kubernetes: want one of %s, or none for that of go.mod", m.Kubernetes, strings.Join(versions, ", "))
}

func buildComponents(ctx context.Context, file, out, version string, notes io.Writer) error {
	// -v names each package as it is built, which is the sign of life.
	args := append([]string{"build", "-v", "-modfile=" + file, "-ldflags", linkerFlags(version)}, compilerFlags()...)
	build := exec.CommandContext(ctx, "go", append(args, "-o", out+"/", ".", etcdPackage)...)
	build.Dir = filepath.Dir(file)
	// A compiler that collects no garbage before it has 1.5 GiB takes a tenth less of the processors' time.
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOGC=off", "GOMEMLIMIT=1500MiB")
	if err := host.RunCommand(build, notes); err != nil {
		return err
	}
	// Both main packages are their modules' roots, so go names the programs after the folders.
	for folder, name := range map[string]string{"components": kubernetesProgram, "server": "etcd"} {
		if err := os.Rename(filepath.Join(out, folder), filepath.Join(out, name)); err != nil {
			return fmt.Errorf("naming %s: %w", name, err)
		}
	}
	return linkPrograms(out, kubernetesPrograms())
}

// compilerFlags compile without inlining what runs on this machine only, which takes a quarter less of the
// processors' time. What the product imports, too, would be compiled twice, and what runs on the emulated
// nodes would be slow.
func compilerFlags() []string {
	var flags []string
	for _, path := range []string{
		"k8s.io/kubernetes", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator",
		"k8s.io/controller-manager", "k8s.io/kubectl", "github.com/google/cel-go", "go.etcd.io",
	} {
		flags = append(flags, "-gcflags="+path+"/...=-l -dwarf=false")
	}
	for _, path := range []string{"kubelet", "probe", "proxy", "util", "volume"} {
		flags = append(flags, "-gcflags=k8s.io/kubernetes/pkg/"+path+"/...=-dwarf=false") // the last flag that fits holds
	}
	return flags
}

// linkPrograms gives the program of all of Kubernetes the names that it is called by.
func linkPrograms(dir string, names []string) error {
	for _, name := range names {
		if err := os.Symlink(kubernetesProgram, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("naming programs: %w", err)
		}
	}
	return nil
}

var versionLine = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\d+\.\d+\.\d+)`)

func kubernetesVersion(mod string) (string, error) {
	found := versionLine.FindStringSubmatch(mod)
	if found == nil {
		return "", fmt.Errorf("the module file of the cluster's programs requires no release of k8s.io/kubernetes")
	}
	return found[1], nil
}

// linkerFlags stamp the version: unstamped programs say v0.0.0, and kubectl
// warns about the skew.
func linkerFlags(version string) string {
	const pkg = "k8s.io/component-base/version"
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
		pkg, version, parts[0], parts[1])
}

// ComponentsDisk returns the path of a read-only file system with the programs of a node.
func (m Maker) ComponentsDisk(ctx context.Context, c Components) (string, error) {
	dir, _, err := m.Cache.Folder(ctx, "components-disk", c.Key, func(ctx context.Context, out string) error {
		tree := filepath.Join(out, "tree")
		if err := os.Mkdir(tree, 0o755); err != nil {
			return fmt.Errorf("making a folder: %w", err)
		}
		if err := os.Link(c.Program(kubernetesProgram), filepath.Join(tree, kubernetesProgram)); err != nil {
			return fmt.Errorf("collecting programs: %w", err)
		}
		if err := linkPrograms(tree, []string{"kubelet", "kube-proxy"}); err != nil {
			return err
		}
		if err := FileSystem(ctx, tree, filepath.Join(out, "disk.img"), "220M"); err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
	if err != nil {
		return "", fmt.Errorf("making the nodes' disk of programs: %w", err)
	}
	return filepath.Join(dir, "disk.img"), nil
}

// FileSystem makes an ext4 image that holds the tree, without a loop device.
// The size is as mke2fs takes it; unused blocks take no room.
func FileSystem(ctx context.Context, tree, image, size string) error {
	return host.Run(ctx, "mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=1,root_owner=0:0", "-d", tree, image, size)
}

// Pause builds the program that holds a pod's namespaces.
func (m Maker) Pause(ctx context.Context) (string, error) {
	source, err := os.ReadFile(filepath.Join(m.Source, "images", "pause", "main.go"))
	if err != nil {
		return "", fmt.Errorf("building pause: %w", err)
	}
	dir, _, err := m.Cache.Folder(ctx, "pause", cache.Key(string(source)), func(ctx context.Context, out string) error {
		build := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", filepath.Join(out, "pause"), "./images/pause")
		build.Dir = m.Source
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		return host.RunCommand(build, io.Discard)
	})
	if err != nil {
		return "", fmt.Errorf("building pause: %w", err)
	}
	return filepath.Join(dir, "pause"), nil
}
