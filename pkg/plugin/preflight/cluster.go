// Package preflight says before an installation whether a cluster and its nodes are suitable. Gather reads
// the API; a Prober runs a short-lived pod on each node; Check draws the conclusions.
package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
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
	// PointClasses are the names of the classes with access points: ours, and those of the AWS EFS CSI driver.
	PointClasses []string
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
	f := &Facts{Options: o}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	f.Version = version.GitVersion
	r, core := reading.Reader{Unread: &f.Unread}, client.CoreV1()
	if namespace := reading.Get(ctx, &r, "namespaces", "", o.Namespace, core.Namespaces().Get); namespace != nil {
		f.Labels = map[string]string{}
		maps.Copy(f.Labels, namespace.Labels)
	}
	f.Nodes = reading.List[*corev1.Node](ctx, &r, "nodes", "", "", core.Nodes().List)
	f.Services = reading.List[*corev1.Service](ctx, &r, "services", "", "", core.Services(metav1.NamespaceAll).List)
	reading.Each(ctx, &r, "storageclasses.storage.k8s.io", "", "", client.StorageV1().StorageClasses().List, func(class *storagev1.StorageClass) {
		if volumes.MakesAccessPoints(class) {
			f.PointClasses = append(f.PointClasses, class.Name)
		}
	})
	reading.Each(ctx, &r, "pods", "", "", core.Pods(metav1.NamespaceAll).List, func(pod *corev1.Pod) {
		if span, ok := nodePortsOf(pod); ok {
			f.NodePorts = span
		}
		if len(hostPorts(pod)) > 0 { // a cluster has many without
			f.Pods = append(f.Pods, pod)
		}
	})
	return f, r.Failed
}

func hostPorts(pod *corev1.Pod) (all []int) {
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
