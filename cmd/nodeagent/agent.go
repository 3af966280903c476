package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/forbidden"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/node/certificates"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

const (
	// agentMemory is the size from which on garbage is collected without regard to processor time. The
	// agent needs less: with 1,000 targets, the probes' connections and goroutines take 22 MiB.
	agentMemory = 64 << 20
	// agentGarbage is the growth of the heap, in percent, after which garbage is collected. Every sync
	// of the tunnels makes some. Against Go's 100, this is 1 MiB less of every node with a hundred targets, and
	// 2 at the start, for 0.6 % of one processor.
	agentGarbage = 50
	agentUsage   = "  nodeagent [flags]\n  nodeagent supervise [flags]\n  nodeagent version\n" +
		"kubelet's probes are nodeagent-supervise probe healthy|ready.\n"
)

func agentRun(ctx context.Context, args []string, e client.Environment, stdout, stderr io.Writer) int {
	o, set, err := parseAgentOptions(args, e)
	if err != nil {
		return program.ExitWithout(set, err, agentUsage, stdout, stderr)
	}
	debug.SetMemoryLimit(agentMemory)
	debug.SetGCPercent(agentGarbage)
	lines := logging.NewLossy(stderr) // nobody may read them while tunnels fail
	defer lines.Close()
	log := o.Log.New(lines)
	logging.UseForKubernetes(log, forbidden.IsRefusal)
	log.Info("node agent starts", "node", o.agent.Node, "version", buildinfo.Read().String())
	options, broadcast, err := wireAgent(o, log)
	if err == nil {
		err = agent.New(options).Run(ctx)
		broadcast.Close(events.FlushTimeout)
	}
	if err != nil {
		log.Error("node agent ends because of an error", "err", err)
		return program.ExitFailed
	}
	log.Info("node agent ends; the tunnels stay")
	return program.ExitDone
}

const (
	metricsNamespace = "efs_stunnel_node"
	// Limits of each client. Every node has an agent, so they are low.
	agentQPS, agentBurst = 5, 10
)

// wireAgent returns the options of the agent, and its events, which are closed after it.
func wireAgent(o agentOptions, log *slog.Logger) (agent.Options, *events.Broadcast, error) {
	p := client.New(metricsNamespace, log)
	dir, err := confdir.Open(o.stunnelConf)
	if err != nil {
		return agent.Options{}, nil, err
	}
	instance, err := topology.NewMetadata(os.Getenv, p.SDKLogger())
	if err != nil {
		return agent.Options{}, nil, err
	}
	config, err := o.RESTConfig()
	if err != nil {
		return agent.Options{}, nil, err
	}
	config = p.Configure(config, "efs-stunnel-node")
	work, err := client.NewClient(config, agentQPS, agentBurst, 0)
	forEvents, eventsErr := client.NewClient(config, agentQPS, agentBurst, client.EventTimeout)
	forStatus, statusErr := dynamic.NewForConfig(config)
	tables, tablesErr := metadata.NewForConfig(config)
	if err := errors.Join(err, eventsErr, statusErr, tablesErr); err != nil {
		return agent.Options{}, nil, fmt.Errorf("making clients for the apiserver: %w", err)
	}
	broadcast := p.StartEvents(forEvents, forEvents)
	listed, options := &sockets.Lister{}, o.agent
	options.Client, options.TableMetadata, options.Namespace, options.Dir, options.Log = work, tables, o.Namespace, dir, log
	options.Routing.ServerPort, options.Routing.Reserved = wellknown.NFSPort, reserved(o.HTTPAddress)
	options.Metadata = func(ctx context.Context) (routing.Location, error) {
		location, err := instance.Location(ctx)
		return routing.Location(location), err
	}
	options.HasRoute, options.ProcSys = topology.HasRoute, os.DirFS("/proc/sys")
	options.Credentials, options.ClientCertificateDir = certificates.Chain{Log: p.SDKLogger()}.Find, wellknown.ClientCertificateDir
	options.Dialer = &probe.Network{CAFile: options.Routing.CAFile, Log: log}
	options.Clients = func() (sockets.ClientCounts, error) { return listed.Clients(sockets.OwnUID()) }
	options.Listening = func() (sockets.Listeners, error) { return listed.ListeningAs(sockets.OwnUID()) }
	options.Status = func() (tunnelspec.Status, error) { return supervise.ReadStatus(dir) }
	options.WriteStatus = statusWriter(forStatus)
	options.HTTP = httpserver.Options{Address: o.HTTPAddress, Pprof: o.Pprof, Log: log, Metrics: p.Gatherer()}
	options.Events, options.Metrics = broadcast, p.Metrics
	return options, broadcast, nil
}

// statusWriter returns what writes the NodeTunnels of a node, which owns it.
func statusWriter(objectClient dynamic.Interface) func(context.Context, *corev1.Node, v1alpha1.NodeTunnelsStatus) error {
	w := objects.StatusWriter{Client: objectClient, Resource: v1alpha1.NodeTunnelsObjects(), Kind: v1alpha1.NodeTunnelsKind}
	return func(ctx context.Context, node *corev1.Node, status v1alpha1.NodeTunnelsStatus) error {
		ctx, cancel := context.WithTimeout(ctx, client.EventTimeout)
		defer cancel()
		return w.Write(ctx, node.Name, status, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
	}
}

// reserved returns the ports that no tunnel may use.
func reserved(httpAddress string) []int {
	ports := []int{wellknown.AgentHTTPPort}
	if _, text, err := net.SplitHostPort(httpAddress); err == nil {
		if port, err := strconv.Atoi(text); err == nil {
			ports = append(ports, port)
		}
	}
	return ports
}

// Limits of --probe-interval. Idle connections through tunnels are closed after 70 s.
const minProbeInterval, maxProbeInterval = time.Second, time.Minute

// maxSocketPath is the kernel's limit, less the ending zero.
const maxSocketPath = 107

// agentOptions are checked settings.
type agentOptions struct {
	client.Options
	agent       agent.Options
	stunnelConf string
}

func (o *agentOptions) settings() *settings.Set {
	set := settings.New("nodeagent")
	tunnels := set.Group("Tunnels")
	tunnels.Add(settings.Text(&o.stunnelConf, "path", confdir.CheckPrefix), "stunnel-conf", "STUNNEL_CONF_PATH",
		"`path` that begins the names of the tunnels' files; stunnel's configuration adds a dot and the tunnel's name")
	tunnels.Add(settings.Text(&o.agent.Routing.CAFile, "file", checkFile), "ca-file", "EFS_CA_FILE",
		"`file` of the roots that servers' certificates must come from, in PEM, which the supervisor's container must have, too; default: the first of these that exists: "+strings.Join(caFiles(), ", "))
	tunnels.Add(settings.Text(&o.agent.Region, "region", client.CheckRegion), "aws-region", "AWS_REGION",
		"`region` of the file systems, for tables that lack their names; default is what the instance metadata or the node's labels say")
	tunnels.Add(settings.Duration(&o.agent.ProbeInterval, minProbeInterval, maxProbeInterval), "probe-interval", "",
		"time between two probes of a tunnel that no volume uses, which chance shortens by up to a tenth; one in use is probed every 2 s")
	api := set.Group("Kubernetes API")
	api.Add(settings.Text(&o.agent.Node, "name", client.CheckName("a node")), "node-name", "NODE_NAME",
		"`name` of the node that the agent runs on")
	o.AddAPI(api, "the target table; default is the pod's own, outside a cluster "+wellknown.Namespace)
	api.Add(settings.Bool(&o.agent.RemoveStartupTaint), "remove-startup-taint", "",
		"remove the taint "+wellknown.TaintAgentNotReady+" from the node once its tunnels serve")
	o.AddObservation(set.Group("Logs, health and metrics"))
	return set
}

// parseAgentOptions reads arguments and environment. Every error is one line for administrators; help is
// settings.ErrHelp.
func parseAgentOptions(args []string, e client.Environment) (agentOptions, *settings.Set, error) {
	o := agentOptions{
		Options:     client.Options{Namespace: e.Namespace(), HTTPAddress: wellknown.DefaultAgentHTTPAddress},
		agent:       agent.Options{ProbeInterval: 10 * time.Second, HealthWait: wellknown.FirstHealthWait, ViewWait: agent.DefaultViewWait},
		stunnelConf: wellknown.DefaultStunnelConf,
	}
	set := o.settings()
	if err := set.Parse(args, e.Getenv); err != nil {
		return o, set, err
	}
	return o, set, o.check(set)
}

// check is about what no setting can be checked for alone, and finds the roots if none are set.
func (o *agentOptions) check(set *settings.Set) error {
	if o.agent.Node == "" {
		return fmt.Errorf("%s is missing: want the name of the node", set.Names("node-name"))
	}
	if err := client.CheckNamespace(o.Namespace); err != nil { // its default is read from a file
		return set.Wrong("namespace", err)
	}
	if most := maxSocketPath - len(confdir.Dir{}.StoreSocket()); len(o.stunnelConf) > most {
		return set.Wrong("stunnel-conf", fmt.Errorf("want at most %d bytes, as there is a socket beside the files", most))
	}
	if o.agent.Routing.CAFile != "" {
		return nil
	}
	i := slices.IndexFunc(caFiles(), func(name string) bool { return checkFile(name) == nil })
	if i < 0 {
		return fmt.Errorf("%s is missing: want a file of trusted roots; there is none at %s",
			set.Names("ca-file"), strings.Join(caFiles(), ", "))
	}
	o.agent.Routing.CAFile = caFiles()[i]
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
