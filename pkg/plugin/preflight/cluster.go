// Package preflight says before an installation whether a cluster and its nodes are suitable. Gather reads
// the API; a Prober runs a short-lived pod on each node; Check draws the conclusions.
package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Options are the settings of the planned installation.
type Options struct {
	Namespace string     // of the installation
	Ports     ports.Span // of the tunnels
	// Own is the installation's namespace if there is one: its pods have the ports.
	Own string
}

// Facts are the objects of a cluster, and the reports of its nodes, that the checks read.
type Facts struct {
	Options

	Version  string            // of Kubernetes
	Labels   map[string]string // of the namespace; nil if it does not exist
	Nodes    []*corev1.Node
	Services []*corev1.Service
	Pods     []*corev1.Pod // with ports of the host
	// NodePorts is the range of NodePort services; the zero Span if no object shows it.
	NodePorts ports.Span
	Unread    []inspect.Unread

	// Reports are those of the nodes' pods; nil without --nodes.
	Reports map[string]NodeReport
}

// NodeReport is the report of a node's pod, or the reason why there is none.
type NodeReport struct {
	nodereport.Report

	Why string // it was not examined, or ""
}

// Gather reads the API. What the user may not read is in Unread; any other failure is an error.
func Gather(ctx context.Context, client kubernetes.Interface, o Options) (*Facts, error) {
	g := gatherer{client, &Facts{Options: o}}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	g.facts.Version = version.GitVersion
	for _, step := range []func(context.Context) error{g.namespace, g.nodes, g.services, g.pods} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return g.facts, nil
}

type gatherer struct {
	client kubernetes.Interface
	facts  *Facts
}

func (g gatherer) unread(err error, what inspect.Unread) error {
	if apierrors.IsForbidden(err) {
		g.facts.Unread = append(g.facts.Unread, what)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", what.Resource, err)
	}
	return nil
}

func (g gatherer) namespace(ctx context.Context) error {
	namespace, err := g.client.CoreV1().Namespaces().Get(ctx, g.facts.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		g.facts.Labels = map[string]string{}
		if namespace.Labels != nil {
			g.facts.Labels = namespace.Labels
		}
	}
	return g.unread(err, inspect.Unread{Verb: "get", Resource: "namespaces", Name: g.facts.Namespace})
}

func (g gatherer) nodes(ctx context.Context) error {
	return list(ctx, g, "nodes", g.client.CoreV1().Nodes().List, func(node *corev1.Node) { g.facts.Nodes = append(g.facts.Nodes, node) })
}

func (g gatherer) services(ctx context.Context) error {
	return list(ctx, g, "services", g.client.CoreV1().Services(metav1.NamespaceAll).List, func(service *corev1.Service) {
		g.facts.Services = append(g.facts.Services, service)
	})
}

// pods keeps those with ports of the host only: a cluster has many without.
func (g gatherer) pods(ctx context.Context) error {
	return list(ctx, g, "pods", g.client.CoreV1().Pods(metav1.NamespaceAll).List, func(pod *corev1.Pod) {
		if span, ok := nodePortsOf(pod); ok {
			g.facts.NodePorts = span
		}
		if len(hostPorts(pod)) > 0 {
			g.facts.Pods = append(g.facts.Pods, pod)
		}
	})
}

func list[T, L runtime.Object](ctx context.Context, g gatherer, resource string, read func(context.Context, metav1.ListOptions) (L, error), add func(T)) error {
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return read(ctx, o) }
	err := pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if typed, ok := object.(T); ok {
			add(typed)
		}
		return nil
	})
	return g.unread(err, inspect.Unread{Verb: "list", Resource: resource})
}

// hostPorts returns the host ports that the containers of a pod declare.
func hostPorts(pod *corev1.Pod) []int {
	var all []int
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.HostPort != 0 {
				all = append(all, int(port.HostPort))
			}
		}
	}
	return all
}

const nodePortFlag = "--service-node-port-range"

// nodePortsOf reads the range from the flags of an apiserver that is a static pod, as with kubeadm. No API
// shows it, and a dry run does not refuse other ports.
func nodePortsOf(pod *corev1.Pod) (ports.Span, bool) {
	if pod.Namespace != metav1.NamespaceSystem || pod.Labels["component"] != "kube-apiserver" || len(pod.Spec.Containers) == 0 {
		return ports.Span{}, false
	}
	container, text := pod.Spec.Containers[0], defaultNodePorts().String()
	for _, argument := range slices.Concat(container.Command, container.Args) {
		if value, ok := strings.CutPrefix(argument, nodePortFlag+"="); ok {
			text = value
		}
	}
	span, err := ports.ParseSpan(text)
	return span, err == nil
}

func defaultNodePorts() ports.Span {
	return ports.Span{First: wellknown.MinNodePort, Last: wellknown.MaxNodePort}
}
