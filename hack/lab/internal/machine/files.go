package machine

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/controlplane"
	"gnuthought.com/efs-stunnel/hack/lab/internal/pki"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

//go:embed guest
var guestFiles embed.FS

// guestPaths returns the paths of the guest files on the configuration disk. Files under etc are copied over
// the node's own /etc at each boot.
func guestPaths() map[string]string {
	registry := fmt.Sprintf("%s:%d", state.RegistryHost, state.RegistryPort)
	return map[string]string{
		"inittab":         "etc/inittab",
		"boot":            "bin/boot",
		"wait-for":        "bin/wait-for",
		"run-sshd":        "bin/run-sshd",
		"run-containerd":  "bin/run-containerd",
		"run-kubelet":     "bin/run-kubelet",
		"run-kube-proxy":  "bin/run-kube-proxy",
		"shutdown":        "bin/shutdown",
		"containerd.toml": "etc/containerd/config.toml",
		"registry.toml":   "etc/containerd/certs.d/" + registry + "/hosts.toml",
		"cni.conflist":    "etc/cni/net.d/10-lab.conflist",
		"kubelet.yaml":    "etc/kubernetes/kubelet.yaml",
		"node.env":        "node.env",
		"hosts":           "etc/hosts",
		"resolv.conf":     "etc/resolv.conf",
		"sshd_config":     "etc/ssh/sshd_config",
	}
}

// values are the values in the templates of the guest files.
type values struct {
	Name, Zone, Region           string
	Address, IPv4, IPv6          string
	PodCIDR, ClusterPodCIDR      string
	HostAddress, MetadataAddress string
	Everywhere                   string // the destination of the pods' default route
	RegistryHost                 string
	RegistryPort                 int
	PauseImage                   string
}

// render executes the templates of the guest files. Its keys are paths on the configuration disk.
func render(v values) (map[string][]byte, error) {
	out := make(map[string][]byte)
	for name, path := range guestPaths() {
		text, err := guestFiles.ReadFile("guest/" + name)
		if err != nil {
			return nil, fmt.Errorf("reading guest file: %w", err)
		}
		t, err := template.New(name).Option("missingkey=error").Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("reading guest file %s: %w", name, err)
		}
		var b bytes.Buffer
		if err := t.Execute(&b, v); err != nil {
			return nil, fmt.Errorf("rendering guest file %s: %w", name, err)
		}
		out[path] = b.Bytes()
	}
	return out, nil
}

func (m Machine) values() values {
	network := state.NetworkOf(m.Node.IPv6Only)
	return values{
		Name: m.Node.Name, Address: m.Node.Address(), IPv4: m.Node.IPv4(), IPv6: m.Node.IPv6(), Zone: m.Node.Zone, Region: state.Region,
		PodCIDR: m.Node.PodCIDR(), ClusterPodCIDR: network.PodCIDR,
		HostAddress: network.Host, MetadataAddress: network.Metadata, Everywhere: network.Everywhere,
		RegistryHost: state.RegistryHost, RegistryPort: state.RegistryPort,
		PauseImage: m.PauseImage,
	}
}

// writeConfigDisk makes the node's read-only disk of configuration files and keys.
func (m Machine) writeConfigDisk(ctx context.Context) error {
	tree := m.path("config")
	if err := os.RemoveAll(tree); err != nil {
		return fmt.Errorf("clearing %s: %w", tree, err)
	}
	files, err := render(m.values())
	if err != nil {
		return err
	}
	for path, content := range files {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(path, "bin/") {
			mode = 0o755
		}
		if err := writeFile(filepath.Join(tree, path), content, mode); err != nil {
			return err
		}
	}
	if err := m.writeCredentials(filepath.Join(tree, "etc")); err != nil {
		return err
	}
	image := m.path("config.img")
	if err := os.RemoveAll(image); err != nil {
		return fmt.Errorf("clearing %s: %w", image, err)
	}
	return artifacts.FileSystem(ctx, tree, image, "8M")
}

// writeCredentials gives the node its certificates and SSH keys.
func (m Machine) writeCredentials(etc string) error {
	dir := m.Lab.PKI()
	kubernetes := filepath.Join(etc, "kubernetes")
	kubelet, err := dir.Certificate("kubelet-"+m.Node.Name+"-"+strings.NewReplacer(".", "-", ":", "-").Replace(m.Node.Address()), controlplane.ClusterCA, pki.Request{
		CommonName: "system:node:" + m.Node.Name, Organization: "system:nodes",
		Hosts: []string{m.Node.Name, m.Node.Address()},
	})
	if err != nil {
		return err
	}
	proxy, err := dir.Certificate("kube-proxy", controlplane.ClusterCA, pki.Request{CommonName: "system:kube-proxy"})
	if err != nil {
		return err
	}
	for user, pair := range map[string]pki.Pair{"kubelet": kubelet, "kube-proxy": proxy} {
		file := filepath.Join(kubernetes, user+".kubeconfig")
		if err := controlplane.WriteKubeconfig(file, controlplane.NodeServer(m.Node), dir, pair); err != nil {
			return err
		}
	}
	return copyFiles(map[string]string{
		kubelet.CertFile: filepath.Join(kubernetes, "kubelet.crt"),
		kubelet.KeyFile:  filepath.Join(kubernetes, "kubelet.key"),
		dir.Pair(controlplane.ClusterCA).CertFile: filepath.Join(kubernetes, "cluster-ca.crt"),
		hostKey(m.Lab):          filepath.Join(etc, "ssh", "ssh_host_ed25519_key"),
		userKey(m.Lab) + ".pub": filepath.Join(etc, "ssh", "authorized_keys"),
	})
}

func copyFiles(files map[string]string) error {
	for from, to := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("copying to the node's disk: %w", err)
		}
		if err := writeFile(to, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(file string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("writing the node's disk: %w", err)
	}
	if err := os.WriteFile(file, content, mode); err != nil {
		return fmt.Errorf("writing the node's disk: %w", err)
	}
	return nil
}
