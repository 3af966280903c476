package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/logging"
	"gnuthought.com/efs-stunnel/pkg/settings"
	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// namespaceFile is where a pod finds the name of its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Limits of --probe-interval. Idle connections through tunnels are closed after 70 s.
const minProbeInterval, maxProbeInterval = time.Second, time.Minute

// maxSocketPath is the kernel's limit, less the ending zero.
const maxSocketPath = 107

// agentOptions are checked settings.
type agentOptions struct {
	stunnelConf   string
	caFile        string // "" for none found, which is an error when tunnels are made
	region        string // "" to find out
	probeInterval time.Duration

	node, namespace    string
	kubeconfig, master string
	removeStartupTaint bool

	httpAddress string
	pprof       bool
	logLevel    slog.Level
	logFormat   string
}

// agentEnvironment is what settings come from, besides arguments.
type agentEnvironment struct {
	getenv   func(string) string
	readFile func(string) ([]byte, error)
}

func (o *agentOptions) settings() *settings.Set {
	set := settings.New("nodeagent")
	o.bindTunnels(set.Group("Tunnels"))
	o.bindKubernetes(set.Group("Kubernetes API"))
	o.bindObservation(set.Group("Logs, health and metrics"))
	return set
}

func (o *agentOptions) bindTunnels(g *settings.Group) {
	g.Add(settings.Text(&o.stunnelConf, "path", confdir.CheckPrefix), "stunnel-conf", "STUNNEL_CONF_PATH",
		"`path` that begins the names of the tunnels' files; stunnel's configuration adds a dot and the tunnel's name")
	g.Add(settings.Text(&o.caFile, "file", checkFile), "ca-file", "EFS_CA_FILE",
		"`file` of the roots that servers' certificates must come from, in PEM, which the supervisor's container must have, too; default is the first there is of "+strings.Join(caFiles(), ", "))
	g.Add(settings.Text(&o.region, "region", checkRegion), "aws-region", "AWS_REGION",
		"`region` of the file systems, for tables that lack their names; default is what the instance metadata or the node's labels say")
	g.Add(settings.Duration(&o.probeInterval, minProbeInterval, maxProbeInterval), "probe-interval", "",
		"time between two probes of a tunnel that no volume uses, which chance shortens by up to a tenth; one in use is probed every 2 s")
}

func (o *agentOptions) bindKubernetes(g *settings.Group) {
	g.Add(settings.Text(&o.node, "name", checkNode), "node-name", "NODE_NAME",
		"`name` of the node that the agent runs on")
	g.Add(settings.Text(&o.namespace, "namespace", checkNamespace), "namespace", "NAMESPACE",
		"`namespace` of the target table; default is the pod's own, outside a cluster "+wellknown.Namespace)
	g.Add(settings.Text(&o.kubeconfig, "file", anything), "kubeconfig", "",
		"`file` that says how to reach the apiserver from outside a cluster")
	g.Add(settings.Text(&o.master, "url", anything), "master", "",
		"`url` of the apiserver, over that of --kubeconfig")
	g.Add(settings.Bool(&o.removeStartupTaint), "remove-startup-taint", "",
		"remove the taint "+wellknown.TaintAgentNotReady+" from the node once its tunnels serve")
}

func (o *agentOptions) bindObservation(g *settings.Group) {
	g.Add(settings.Text(&o.httpAddress, "host:port", checkAddress), "http-address", "",
		"`host:port` of /healthz, /readyz and /metrics; no host is all addresses")
	g.Add(settings.Bool(&o.pprof), "pprof", "",
		"serve /debug/pprof there, too, to clients on the loopback")
	g.Add(settings.Parsed(&o.logLevel, "level", logging.ParseLevel, slog.Level.String), "log-level", "LOGGING_LEVEL",
		"lowest `level` that is logged: DEBUG, INFO, WARNING, ERROR or CRITICAL")
	g.Add(settings.OneOf(&o.logFormat, "format", string(logging.Text), string(logging.JSON)), "log-format", "",
		"`format` of log lines: text or json")
}

// parseAgentOptions reads arguments and environment. Every error is one line for whoever set
// them; help is settings.ErrHelp.
func parseAgentOptions(args []string, e agentEnvironment) (agentOptions, *settings.Set, error) {
	o := agentOptions{
		stunnelConf: wellknown.DefaultStunnelConf, probeInterval: wellknown.DefaultProbeInterval,
		namespace: defaultNamespace(e), httpAddress: wellknown.DefaultAgentHTTPAddress,
		logFormat: string(logging.Text),
	}
	set := o.settings()
	if err := set.Parse(args, e.getenv); err != nil {
		return o, set, err
	}
	if o.node == "" {
		return o, set, fmt.Errorf("%s is missing: want the name of the node", set.Names("node-name"))
	}
	if err := checkNamespace(o.namespace); err != nil { // its default is read from a file
		return o, set, set.Wrong("namespace", err)
	}
	if most := maxSocketPath - len(confdir.Dir{}.StoreSocket()); len(o.stunnelConf) > most {
		return o, set, set.Wrong("stunnel-conf", fmt.Errorf("want at most %d bytes, as there is a socket beside the files", most))
	}
	if o.caFile != "" {
		return o, set, nil
	}
	if o.caFile = firstFile(caFiles()); o.caFile == "" {
		return o, set, fmt.Errorf("%s is missing: want a file of trusted roots; there is none at %s",
			set.Names("ca-file"), strings.Join(caFiles(), ", "))
	}
	return o, set, nil
}

func defaultNamespace(e agentEnvironment) string {
	if text, err := e.readFile(namespaceFile); err == nil && len(text) > 0 {
		return strings.TrimSpace(string(text))
	}
	return wellknown.Namespace // outside a cluster
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

func firstFile(names []string) string {
	i := slices.IndexFunc(names, func(name string) bool { return checkFile(name) == nil })
	if i < 0 {
		return ""
	}
	return names[i]
}

// Errors of the checks say what is wanted; package settings puts setting and value before them.

func anything(string) error { return nil }

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

func checkNode(name string) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return errors.New(`want the name of a node: 1 to 253 lower-case letters, digits, "-" or "."`)
	}
	return nil
}

func checkNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return errors.New(`want the name of a namespace: 1 to 63 lower-case letters, digits or "-"`)
	}
	return nil
}

var region = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`) // it becomes part of host names

func checkRegion(name string) error {
	if !region.MatchString(name) {
		return errors.New("want the name of an AWS region, as us-east-1")
	}
	return nil
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	number, bad := strconv.Atoi(port)
	if err != nil || bad != nil || number < 0 || number > wellknown.MaxPort {
		return fmt.Errorf("want host:port or :port, with a port up to %d", wellknown.MaxPort)
	}
	return nil
}
