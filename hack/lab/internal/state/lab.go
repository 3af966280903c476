// Package state describes one lab: its name, its folder, its addresses and its settings, which are
// kept in the file lab.json and survive a crash or reboot.
package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"gnuthought.com/efs-stunnel/hack/lab/internal/jsonfile"
	"gnuthought.com/efs-stunnel/hack/lab/internal/pki"
	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
)

// root holds one folder for each lab. Nodes' disks do not belong into a tmpfs, and a lab outlives the
// login session that made it.
const root = "/var/lib/efs-stunnel-lab"

// nameRule keeps the namespace's name and the socket paths short enough.
var nameRule = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// Lab is one lab on this machine, up or not.
type Lab struct {
	Name string
	Dir  string // of all that the lab writes outside the cache
}

// New describes the lab of a name. It makes nothing.
func New(name string) (Lab, error) {
	if !nameRule.MatchString(name) {
		return Lab{}, fmt.Errorf("lab name %q: want 1 to 20 of a-z, 0-9 and -, not beginning or ending with -", name)
	}
	return Lab{Name: name, Dir: filepath.Join(root, name)}, nil
}

// Exists reports whether the lab has a folder: it is up, or its start or removal was interrupted.
func (l Lab) Exists() bool {
	_, err := os.Stat(l.Dir)
	return err == nil
}

// Path joins names below the lab's folder.
func (l Lab) Path(elem ...string) string {
	return filepath.Join(append([]string{l.Dir}, elem...)...)
}

// Parts holds the records of the lab's processes.
func (l Lab) Parts() proc.Dir { return proc.Dir{Path: l.Path("parts")} }

// PKI returns the folder of the lab's certificates.
func (l Lab) PKI() pki.Dir { return pki.Dir{Path: l.Path("pki")} }

// LogFile returns the path of a part's log.
func (l Lab) LogFile(part string) string { return l.Path("logs", part+".log") }

// Kubeconfig returns the path of the administrator's kubeconfig, for use on this machine.
func (l Lab) Kubeconfig() string { return l.Path("kubeconfig") }

// StandinSocket returns the path of the control socket of the EFS stand-in.
func (l Lab) StandinSocket() string { return l.Path("standin.sock") }

// NetNS returns the name of the lab's network namespace.
func (l Lab) NetNS() string { return "efs-lab-" + l.Name }

// NetNSPath returns the path of the namespace's file.
func (l Lab) NetNSPath() string { return "/run/netns/" + l.NetNS() }

// Settings are the settings of a lab from its first start. Zero ports are not chosen yet.
type Settings struct {
	Nodes         []Node `json:"nodes"`
	NodeMemoryMiB int    `json:"nodeMemoryMiB"`
	NodeCPUs      int    `json:"nodeCPUs"`
	IPv6Only      bool   `json:"ipv6Only,omitempty"` // nodes, pods and Services have no address of IPv4

	// Ports on this machine's 127.0.0.1, forwarded into the lab.
	APIServerPort int `json:"apiserverPort"`
	RegistryPort  int `json:"registryPort"`
	EFSAPIPort    int `json:"efsAPIPort"`

	ControllerManagerQPS   float64 `json:"controllerManagerQPS"`   // requests a second
	ControllerManagerBurst int     `json:"controllerManagerBurst"` // requests
	Audit                  bool    `json:"audit"`                  // write the apiserver's audit log
}

// DefaultSettings returns the settings of a first `lab up`; the controller-manager's limits are its own defaults.
func DefaultSettings() Settings {
	return Settings{
		Nodes: []Node{
			{Name: "node-1", Index: 1, Zone: Zones()[0].Name},
			{Name: "node-2", Index: 2, Zone: Zones()[1].Name},
		},
		NodeMemoryMiB:          2048,
		NodeCPUs:               2,
		ControllerManagerQPS:   20,
		ControllerManagerBurst: 30,
	}
}

// ErrNotUp means that a lab was never up, or was taken down.
var ErrNotUp = errors.New("not up: run `make lab-up`")

// Load reads the settings; ErrNotUp when there are none.
func (l Lab) Load() (Settings, error) {
	s, err := jsonfile.Read[Settings](l.settingsFile())
	if errors.Is(err, os.ErrNotExist) {
		return Settings{}, fmt.Errorf("lab %s is %w", l.Name, ErrNotUp)
	}
	if err != nil {
		return Settings{}, fmt.Errorf("reading settings of lab %s: %w", l.Name, err)
	}
	return s, nil
}

// LoadOrDefault reads the settings, or returns the default ones for a new lab.
func (l Lab) LoadOrDefault() (s Settings, isNew bool, err error) {
	s, err = l.Load()
	if errors.Is(err, ErrNotUp) {
		return DefaultSettings(), true, nil
	}
	return s, false, err
}

// Save writes the settings in one step.
func (l Lab) Save(s Settings) error {
	if err := jsonfile.Write(l.settingsFile(), s); err != nil {
		return fmt.Errorf("writing settings of lab %s: %w", l.Name, err)
	}
	return nil
}

func (l Lab) settingsFile() string { return l.Path("lab.json") }

// Node finds a node by its name.
func (s Settings) Node(name string) (Node, error) {
	i := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		names := make([]string, len(s.Nodes))
		for i, n := range s.Nodes {
			names[i] = n.Name
		}
		return Node{}, fmt.Errorf("no node %q in this lab: it has %v", name, names)
	}
	return s.Nodes[i], nil
}

// SetIPv6Only chooses the addresses of a new lab.
func (s *Settings) SetIPv6Only(ipv6Only, isNew bool) error {
	if s.IPv6Only == ipv6Only {
		return nil
	}
	if !isNew {
		return fmt.Errorf("--ipv6-only=%t: this lab has other addresses already: take it down first, with its data", ipv6Only)
	}
	s.IPv6Only = ipv6Only
	for i := range s.Nodes {
		s.Nodes[i].IPv6Only = ipv6Only
	}
	return nil
}

// Network returns the lab's network.
func (s Settings) Network() Network { return NetworkOf(s.IPv6Only) }

// SetNodeCount chooses the nodes of a new lab. Those of an existing lab are added and removed one by
// one.
func (s *Settings) SetNodeCount(count int, isNew bool) error {
	if len(s.Nodes) == count {
		return nil
	}
	if !isNew {
		return fmt.Errorf("--nodes %d: this lab has %d already: use `lab node add` and `lab node remove`", count, len(s.Nodes))
	}
	s.Nodes = nil
	for i := 1; i <= count; i++ {
		n, err := s.NewNode(fmt.Sprintf("node-%d", i), "")
		if err != nil {
			return err
		}
		s.Nodes = append(s.Nodes, n)
	}
	return nil
}
