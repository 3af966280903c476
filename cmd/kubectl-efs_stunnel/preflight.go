package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/preflight"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

type preflightFlags struct {
	nodes       bool
	image       string
	ports       string
	fileSystems []string
	region      string
	caFile      string
}

func (p *plugin) preflight() *cobra.Command {
	var f preflightFlags
	command := &cobra.Command{
		Use:   "preflight",
		Short: "Check before the installation whether cluster and nodes are suitable",
		Long: "Check before the installation whether a cluster is suitable: its version, ports, admission level and nodes.\n" +
			"With --nodes a short-lived pod on each node reads whether it can mount NFS volumes, and connects to mount targets. Nothing stays.",
		Example: "  kubectl efs-stunnel preflight\n" +
			"  kubectl efs-stunnel preflight --nodes --image registry.example.com/efs-stunnel:1.2 --file-system fs-0123456789abcdef0",
		RunE: func(command *cobra.Command, _ []string) error {
			return p.runPreflight(command.Context(), f)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&f.nodes, "nodes", false, "examine each node with a short-lived pod on the host's network, in the namespace of the installation if it exists, else in --namespace")
	flags.StringVar(&f.image, "image", "", "`image` of the node agent for these pods (default: the installed one)")
	usual := ports.Span{First: wellknown.DefaultBasePort, Last: wellknown.DefaultBasePort + wellknown.DefaultPortCount - 1}
	flags.StringVar(&f.ports, "ports", usual.String(), "`first-last` port of the tunnels, as --base-stunnel-port and --stunnel-port-count of the manager will be")
	flags.StringSliceVar(&f.fileSystems, "file-system", nil, "`id` of a file system whose mount target each node connects to; or NAME=ADDRESS, where NAME is in the server's certificate; needs --nodes")
	flags.StringVar(&f.region, "aws-region", "", "`region` of the file systems (default: the nodes')")
	flags.StringVar(&f.caFile, "ca-file", "", "`file` of the roots that servers' certificates come from, in PEM (default: those in the image)")
	return command
}

// check checks the flags, also against each other, and returns the ports and the text of --ca-file.
func (f preflightFlags) check() (ports.Span, string, error) {
	span, err := ports.ParseSpan(f.ports)
	switch {
	case err != nil:
		return span, "", fmt.Errorf("--ports %s: %w", f.ports, err)
	case span.First < wellknown.MinPort:
		return span, "", fmt.Errorf("--ports %s: want ports from %d on", f.ports, wellknown.MinPort)
	case !f.nodes && (f.image != "" || len(f.fileSystems) > 0 || f.caFile != "" || f.region != ""):
		return span, "", errors.New("--image, --file-system, --aws-region and --ca-file: want --nodes with them")
	case f.caFile == "":
		return span, "", nil
	}
	roots, err := os.ReadFile(f.caFile)
	if err != nil {
		return span, "", fmt.Errorf("--ca-file: %w", err)
	}
	return span, string(roots), nil
}

func (p *plugin) runPreflight(ctx context.Context, f preflightFlags) error {
	span, roots, err := f.check()
	if err != nil {
		return err
	}
	c, progress, err := p.begin()
	if err != nil {
		return err
	}
	defer progress.stop()
	installed, err := inspect.Locate(ctx, c.client, inspect.Options{Namespace: p.system, Now: c.now})
	if err != nil {
		return err
	}
	options := preflight.Options{Namespace: installed.Namespace, Ports: span}
	if installed.Agents != nil {
		options.Own = installed.Namespace
	}
	facts, err := preflight.Gather(ctx, c.client, options)
	if err != nil {
		return err
	}
	if f.nodes {
		if facts.Reports, err = p.examineNodes(ctx, c, f, roots, installed, facts, progress); err != nil {
			return err
		}
	}
	progress.stop()
	diagnosis := preflight.Check(facts)
	return show(p, diagnosis, diagnosis.Level, c.now())
}

func (p *plugin) examineNodes(ctx context.Context, c connection, f preflightFlags, roots string,
	installed *inspect.Snapshot, facts *preflight.Facts, progress *progress,
) (map[string]preflight.NodeReport, error) {
	prober := preflight.Prober{Client: c.client, Namespace: p.namespace(), Image: f.image, Progress: progress.step}
	if facts.Labels != nil { // the namespace exists
		prober.Namespace = facts.Namespace
	}
	if agents := installed.Agents; agents != nil {
		spec := agents.Spec.Template.Spec
		prober.PullSecrets = pullSecrets(ctx, c.client, agents)
		if len(spec.Containers) > 0 {
			prober.Image = cmp.Or(prober.Image, spec.Containers[0].Image)
		}
	}
	if prober.Image == "" {
		return nil, errors.New("--image is missing: want the image of the node agent, as there is no installation yet")
	}
	region := cmp.Or(f.region, regionOf(facts.Nodes))
	servers, err := serversOf(f.fileSystems, region)
	if err != nil {
		return nil, err
	}
	prober.Request = nodereport.Request{Servers: servers, CA: roots, Region: region}
	return prober.Run(ctx, facts.Nodes)
}

// pullSecrets returns those of the agents' pods, which have them from their service account if they name none.
func pullSecrets(ctx context.Context, client kubernetes.Interface, agents *appsv1.DaemonSet) []corev1.LocalObjectReference {
	spec := agents.Spec.Template.Spec
	if len(spec.ImagePullSecrets) > 0 || spec.ServiceAccountName == "" {
		return spec.ImagePullSecrets
	}
	account, err := client.CoreV1().ServiceAccounts(agents.Namespace).Get(ctx, spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return nil // if the image cannot be pulled, the report says so
	}
	return account.ImagePullSecrets
}

// regionOf returns the region of any node: a cluster is in one region.
func regionOf(nodes []*corev1.Node) string {
	i := slices.IndexFunc(nodes, func(node *corev1.Node) bool { return node.Labels[corev1.LabelTopologyRegion] != "" })
	if i < 0 {
		return ""
	}
	return nodes[i].Labels[corev1.LabelTopologyRegion]
}

// serversOf returns the servers of ids of file systems, or of names with an address.
func serversOf(arguments []string, region string) ([]nodereport.Server, error) {
	var servers []nodereport.Server
	for _, argument := range arguments {
		name, address, hasAddress := strings.Cut(argument, "=")
		if hasAddress {
			if !isAddress(address) || name == "" {
				return nil, fmt.Errorf("--file-system %s: want NAME=ADDRESS, with an IP address", argument)
			}
			servers = append(servers, nodereport.Server{FileSystem: name, Host: name, Address: address})
			continue
		}
		if err := efs.CheckFileSystemID(name); err != nil {
			return nil, fmt.Errorf("--file-system %s: %w", argument, err)
		}
		if region == "" {
			return nil, fmt.Errorf("--file-system %s: the nodes have no label %s: want --aws-region", argument, corev1.LabelTopologyRegion)
		}
		servers = append(servers, nodereport.Server{FileSystem: name, Host: name + "." + topology.DNSSuffix(region)})
	}
	return servers, nil
}

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	_, portErr := netip.ParseAddrPort(text)
	return err == nil || portErr == nil
}
