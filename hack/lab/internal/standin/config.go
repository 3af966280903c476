// Package standin imitates Amazon EFS inside a lab's network: its API, its
// mount targets with TLS, the metadata service of EC2 and the VPC's resolver.
// It fails on demand. The NFS servers behind the mount targets are real.
package standin

import (
	"encoding/json"
	"fmt"
	"os"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

// Config is what the lab tells its stand-in. Addresses are host:port.
type Config struct {
	StateDir        string            `json:"stateDir"` // the world, all files, NFS servers' state
	LogDir          string            `json:"logDir"`   // of the NFS servers
	AdminSocket     string            `json:"adminSocket"`
	Region          string            `json:"region"`
	VPCID           string            `json:"vpcID"`
	Zones           []Zone            `json:"zones"`
	Bridge          string            `json:"bridge"`          // gets the mount targets' addresses
	APIAddress      string            `json:"apiAddress"`      // plain HTTP
	MetadataAddress string            `json:"metadataAddress"` // "" = off
	DNSAddress      string            `json:"dnsAddress"`      // "" = off
	Hosts           map[string]string `json:"hosts,omitempty"` // more DNS names and their IP addresses
	CACertFile      string            `json:"caCertFile"`      // issues the mount targets' certificates
	CAKeyFile       string            `json:"caKeyFile"`
	AccessKeyID     string            `json:"accessKeyID"`
	SecretAccessKey string            `json:"secretAccessKey"`
	GaneshaRoot     string            `json:"ganeshaRoot"` // into which GaneshaPackages were extracted
	ProcDir         string            `json:"procDir"`     // records of the NFS servers' processes
}

// LoadConfig reads a configuration from a JSON file.
func LoadConfig(file string) (Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Config{}, fmt.Errorf("reading the EFS stand-in's configuration: %w", err)
	}
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return Config{}, fmt.Errorf("reading the EFS stand-in's configuration from %s: %w", file, err)
	}
	return c, nil
}

func (c Config) check() error {
	for name, value := range map[string]string{
		"stateDir": c.StateDir, "logDir": c.LogDir, "adminSocket": c.AdminSocket, "region": c.Region, "vpcID": c.VPCID,
		"bridge": c.Bridge, "apiAddress": c.APIAddress, "caCertFile": c.CACertFile, "caKeyFile": c.CAKeyFile,
		"accessKeyID": c.AccessKeyID, "secretAccessKey": c.SecretAccessKey, "ganeshaRoot": c.GaneshaRoot, "procDir": c.ProcDir,
	} {
		if value == "" {
			return fmt.Errorf("the EFS stand-in's configuration lacks %s", name)
		}
	}
	if len(c.Zones) == 0 {
		return fmt.Errorf("the EFS stand-in's configuration lacks zones")
	}
	return nil
}

// The names under which the lab knows the stand-in's parts.
type (
	// Client talks to a running stand-in.
	Client = admin.Client
	// Status is what a stand-in is doing.
	Status = admin.Status
	// MountTargetChange changes a mount target.
	MountTargetChange = admin.MountTargetChange
	// AccessPointChange changes an access point.
	AccessPointChange = admin.AccessPointChange
	// Zone is an availability zone with its one subnet.
	Zone = world.Zone
	// Node is a machine whose requests are answered.
	Node = world.Node
)

// NewClient makes a client of the stand-in that listens on a socket.
func NewClient(socket string) *Client { return admin.NewClient(socket) }

// GaneshaPackages lists the Debian packages of which GaneshaRoot is made.
func GaneshaPackages() []string { return ganesha.Packages() }

// CheckGaneshaRoot tells what a folder of extracted packages lacks.
func CheckGaneshaRoot(root string) error { return ganesha.Root(root).Check() }
