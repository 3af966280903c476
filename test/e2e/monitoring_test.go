//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
)

const monitoringFolder = "deploy/kustomize/components/monitoring"

// prometheusReadsMetrics: Prometheus finds everything for which the product's alerts and dashboard ask it.
// The operator of the ServiceMonitors is not in the lab, and agents serve on the loopback of their nodes
// there, so the test finds the pods as the operator does, and reads their metrics from their nodes.
func prometheusReadsMetrics(l *lab) {
	m := readMonitoring(l.T, filepath.Join(l.root, monitoringFolder))
	l.apply(system, m.service)
	l.Cleanup(func() { l.kubectl("-n", system, "delete", "service", "efs-stunnel-metrics") })
	ns := l.namespace("monitored")
	l.apply(ns, claim("data", class)+pod("persistentVolumeClaim: {claimName: data}", "")) // a tunnel in use
	l.wait(ns, "condition=Ready", "pod/user")
	l.usageIsCounted(ns)

	var targets []target
	l.eventually("each ServiceMonitor to find two pods or more: of nodes, or replicas", func() string {
		targets = nil
		for _, monitor := range m.monitors {
			found := l.targetsOf(monitor)
			if len(found) < 2 {
				return fmt.Sprintf("%s finds %+v", monitor.Metadata.Name, found)
			}
			targets = append(targets, found...)
		}
		return ""
	})
	pods := httptest.NewServer(l.scrapes(targets))
	l.Cleanup(pods.Close) // after Prometheus

	const interval = "30s" // a node may answer slowly
	p := startPrometheus(l.T, strings.TrimSpace(l.lab("prometheus")), m.rules, configOf(targets, pods.Listener.Addr().String(), interval))
	l.eventually("Prometheus to read the metrics of each pod", func() string { return p.targetsDown(len(targets)) })
	l.eventually("each query to have data", func() string {
		missing, _ := p.ask(m.queries, emptyInTheLab)
		return strings.Join(missing, "\n")
	})
	if _, wrong := p.ask(m.queries, emptyInTheLab); len(wrong) > 0 {
		l.Errorf("entries of emptyInTheLab:\n%s", strings.Join(wrong, "\n"))
	}
	l.eventually("each alert to be evaluated", p.rulesFailing)
}

const (
	noServer = "exists while there is an NFS server"
	noLanes  = "exists with --lanes"
)

// emptyInTheLab are queries without a result in a healthy lab, and why.
var emptyInTheLab = map[string]string{
	"kube_daemonset_status_number_unavailable":    "of kube-state-metrics, which the lab has not",
	"efs_stunnel_node_tunnel_problem":             "exists while a tunnel has a problem",
	"efs_stunnel_node_target_unusable":            "exists while a target cannot be served",
	"efs_stunnel_node_client_certificate_failing": "exists for tunnels with a client certificate",
	"efs_stunnel_manager_forbidden":               "exists while a right is missing",
	"efs_stunnel_node_forbidden":                  "exists while a right is missing",
	"efs_stunnel_manager_shared_volumes":          "exists while there is a SharedVolume",
	"histogram_quantile(0.99, sum by (le, node) (rate(efs_stunnel_node_tunnel_request_duration_seconds_bucket[5m])))": noLanes,
	"sum by (node) (efs_stunnel_node_tunnel_lanes)":                                                                   noLanes,
	"sum by (node) (efs_stunnel_node_tunnel_requests_waiting)":                                                        noLanes,
	"efs_stunnel_nfs_server_disk_free_bytes":                                                                          noServer, "efs_stunnel_nfs_server_disk_size_bytes": noServer,
	"efs_stunnel_nfs_server_certificate_end_timestamp_seconds": noServer, "efs_stunnel_nfs_server_quotas_failing": noServer,
	"topk(10, max by (namespace, persistentvolumeclaim) (efs_stunnel_volume_used_bytes / (efs_stunnel_volume_requested_bytes > 0)) > 1)": "no claim holds too much",
}

// targetsOf returns the pods behind the Services that a monitor selects; slices have their Service's labels.
func (l *lab) targetsOf(monitor serviceMonitor) []target {
	l.Helper()
	var labels []string
	for name, value := range monitor.Spec.Selector.MatchLabels {
		labels = append(labels, name+"="+value)
	}
	var list discoveryv1.EndpointSliceList
	text := l.kubectl("-n", system, "get", "endpointslices", "-l", strings.Join(labels, ","), "-o", "json")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		l.Fatal(err)
	}
	return monitor.targets(list.Items)
}

// scrapes answers /POD with that pod's metrics. Nothing is logged: Prometheus asks for as long as it runs.
func (l *lab) scrapes(targets []target) http.Handler {
	mux := http.NewServeMux()
	for _, t := range targets {
		mux.HandleFunc("/"+t.labels["pod"], func(w http.ResponseWriter, r *http.Request) {
			text, err := l.scrape(r.Context(), t)
			if err != nil {
				http.Error(w, fmt.Sprintf("%v: %s", err, text), http.StatusBadGateway)
				return
			}
			_, _ = w.Write(text) // Prometheus may have given up
		})
	}
	return mux
}

func (l *lab) scrape(ctx context.Context, t target) ([]byte, error) {
	read := func(host string) string {
		return fmt.Sprintf("busybox wget -q -O - http://%s%s", net.JoinHostPort(host, strconv.Itoa(int(t.port))), t.path)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(l.root, "bin/lab"), "exec", t.node, "--", "sh", "-c",
		read(t.address)+" || "+read("127.0.0.1"))
	cmd.Env = append(os.Environ(), "LAB_NAME="+labName)
	return cmd.Output()
}
