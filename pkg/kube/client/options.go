package client

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

// NamespaceFile holds the name of a pod's namespace.
const NamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Environment is the source of settings besides arguments.
type Environment struct {
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
}

// ProcessEnvironment returns that of the process.
func ProcessEnvironment() Environment { return Environment{os.Getenv, os.ReadFile} }

// Namespace returns the pod's namespace, or that of the manifests outside a cluster.
func (e Environment) Namespace() string {
	if text, err := e.ReadFile(NamespaceFile); err == nil && len(text) > 0 {
		return strings.TrimSpace(string(text))
	}
	return wellknown.Namespace
}

// Options are the settings that manager and node agent have in common.
type Options struct {
	Namespace          string
	Kubeconfig, Master string
	HTTPAddress        string
	Pprof              bool
	Log                program.Log
}

// AddAPI adds the settings for the Kubernetes API to a group; namespaceOf is what the namespace is for.
func (o *Options) AddAPI(g *settings.Group, namespaceOf string) {
	g.Add(settings.Text(&o.Namespace, "namespace", CheckNamespace), "namespace", "NAMESPACE",
		"`namespace` of "+namespaceOf)
	g.Add(settings.Text(&o.Kubeconfig, "file", anything), "kubeconfig", "",
		"`file` that says how to reach the apiserver from outside a cluster")
	g.Add(settings.Text(&o.Master, "url", anything), "master", "",
		"`url` of the apiserver, over that of --kubeconfig")
}

// AddObservation adds the settings for logs, health and metrics to a group.
func (o *Options) AddObservation(g *settings.Group) {
	g.Add(settings.Text(&o.HTTPAddress, "host:port", checkAddress), "http-address", "",
		"`host:port` of /healthz, /readyz and /metrics; no host is all addresses")
	g.Add(settings.Bool(&o.Pprof), "pprof", "",
		"serve /debug/pprof there, too, to clients on the loopback")
	o.Log.Add(g)
}

// RESTConfig returns the configuration of clients for the apiserver. It sends no request.
func (o *Options) RESTConfig() (*rest.Config, error) {
	if o.Kubeconfig == "" && o.Master == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("looking for the apiserver from inside a cluster (outside, set --kubeconfig): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags(o.Master, o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading --kubeconfig %q: %w", o.Kubeconfig, err)
	}
	return config, nil
}

// Errors of the checks say what is wanted; package settings puts setting and value before them.

func anything(string) error { return nil }

// CheckNamespace checks the name of a namespace.
func CheckNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return errors.New(`want the name of a namespace: 1 to 63 lower-case letters, digits or "-"`)
	}
	return nil
}

// CheckName returns a check of the names of other objects; what is "an object" or "a node".
func CheckName(what string) func(string) error {
	return func(name string) error {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf(`want the name of %s: 1 to 253 lower-case letters, digits, "-" or "."`, what)
		}
		return nil
	}
}

var region = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

// CheckRegion checks the name of an AWS region, which becomes part of host names.
func CheckRegion(name string) error {
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
