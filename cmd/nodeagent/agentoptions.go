package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

// Limits of --probe-interval. Idle connections through tunnels are closed after 70 s.
const minProbeInterval, maxProbeInterval = time.Second, time.Minute

// maxSocketPath is the kernel's limit, less the ending zero.
const maxSocketPath = 107

// agentOptions are checked settings.
type agentOptions struct {
	client.Options

	stunnelConf   string
	caFile        string
	region        string // "" to find out
	probeInterval time.Duration

	node               string
	removeStartupTaint bool
}

func (o *agentOptions) settings() *settings.Set {
	set := settings.New("nodeagent")
	tunnels := set.Group("Tunnels")
	tunnels.Add(settings.Text(&o.stunnelConf, "path", confdir.CheckPrefix), "stunnel-conf", "STUNNEL_CONF_PATH",
		"`path` that begins the names of the tunnels' files; stunnel's configuration adds a dot and the tunnel's name")
	tunnels.Add(settings.Text(&o.caFile, "file", checkFile), "ca-file", "EFS_CA_FILE",
		"`file` of the roots that servers' certificates must come from, in PEM, which the supervisor's container must have, too; default: the first of these that exists: "+strings.Join(caFiles(), ", "))
	tunnels.Add(settings.Text(&o.region, "region", client.CheckRegion), "aws-region", "AWS_REGION",
		"`region` of the file systems, for tables that lack their names; default is what the instance metadata or the node's labels say")
	tunnels.Add(settings.Duration(&o.probeInterval, minProbeInterval, maxProbeInterval), "probe-interval", "",
		"time between two probes of a tunnel that no volume uses, which chance shortens by up to a tenth; one in use is probed every 2 s")
	api := set.Group("Kubernetes API")
	api.Add(settings.Text(&o.node, "name", client.CheckName("a node")), "node-name", "NODE_NAME",
		"`name` of the node that the agent runs on")
	o.AddAPI(api, "the target table; default is the pod's own, outside a cluster "+wellknown.Namespace)
	api.Add(settings.Bool(&o.removeStartupTaint), "remove-startup-taint", "",
		"remove the taint "+wellknown.TaintAgentNotReady+" from the node once its tunnels serve")
	o.AddObservation(set.Group("Logs, health and metrics"))
	return set
}

// parseAgentOptions reads arguments and environment. Every error is one line for administrators; help is
// settings.ErrHelp.
func parseAgentOptions(args []string, e client.Environment) (agentOptions, *settings.Set, error) {
	o := agentOptions{
		Options:     client.Options{Namespace: e.Namespace(), HTTPAddress: wellknown.DefaultAgentHTTPAddress},
		stunnelConf: wellknown.DefaultStunnelConf, probeInterval: wellknown.DefaultProbeInterval,
	}
	set := o.settings()
	if err := set.Parse(args, e.Getenv); err != nil {
		return o, set, err
	}
	return o, set, o.check(set)
}

// check is about what no setting can be checked for alone, and finds the roots if none are set.
func (o *agentOptions) check(set *settings.Set) error {
	if o.node == "" {
		return fmt.Errorf("%s is missing: want the name of the node", set.Names("node-name"))
	}
	if err := client.CheckNamespace(o.Namespace); err != nil { // its default is read from a file
		return set.Wrong("namespace", err)
	}
	if most := maxSocketPath - len(confdir.Dir{}.StoreSocket()); len(o.stunnelConf) > most {
		return set.Wrong("stunnel-conf", fmt.Errorf("want at most %d bytes, as there is a socket beside the files", most))
	}
	if o.caFile != "" {
		return nil
	}
	i := slices.IndexFunc(caFiles(), func(name string) bool { return checkFile(name) == nil })
	if i < 0 {
		return fmt.Errorf("%s is missing: want a file of trusted roots; there is none at %s",
			set.Names("ca-file"), strings.Join(caFiles(), ", "))
	}
	o.caFile = caFiles()[i]
	return nil
}

// caFiles are Amazon's roots in our image, then the system's trust store as Debian, Red Hat and
// Alpine have it.
func caFiles() []string {
	return []string{
		"/etc/efs-stunnel/amazon-roots.pem",
		"/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		"/etc/ssl/cert.pem",
	}
}

func checkFile(name string) error {
	info, err := os.Stat(name)
	switch {
	case !filepath.IsAbs(name), err == nil && !info.Mode().IsRegular():
		return errors.New("want the absolute path of a file")
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no such file in this container; mount it into supervisor and agent")
	}
	return err
}
