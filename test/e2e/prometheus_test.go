//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// monitoring has the objects of the component.
type monitoring struct {
	service  string // that of the agents, in YAML
	monitors []serviceMonitor
	rules    []byte   // as a file of Prometheus
	queries  []string // each panel's, and the metrics of each alert
}

type serviceMonitor struct {
	Metadata struct{ Name string }
	Spec     struct {
		Selector  struct{ MatchLabels map[string]string }
		Endpoints []struct {
			Port, Path  string
			HonorLabels bool
			Relabelings []struct {
				SourceLabels []string
				TargetLabel  string
			}
		}
	}
}

// metricName has the names that rules use. An alert's own expression has no result while nothing is wrong.
var metricName = regexp.MustCompile(`\b(efs_stunnel_\w+|kube_\w+|up)\b`)

func readMonitoring(t *testing.T, folder string) monitoring {
	t.Helper()
	var m monitoring
	for text := range strings.SplitSeq(readText(t, folder, "servicemonitors.yaml"), "\n---\n") {
		var object struct{ Kind string }
		var monitor serviceMonitor
		mustDecode(t, text, &object)
		if object.Kind == "Service" {
			m.service = text
			continue
		}
		mustDecode(t, text, &monitor)
		m.monitors = append(m.monitors, monitor)
	}
	var rules struct {
		Spec struct {
			Groups []map[string]any `json:"groups"`
		}
	}
	mustDecode(t, readText(t, folder, "rules.yaml"), &rules)
	m.rules = mustEncode(t, rules.Spec)
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	mustDecode(t, readText(t, folder, "dashboard.json"), &dashboard)
	queries := map[string]bool{}
	for _, group := range rules.Spec.Groups {
		for _, name := range metricName.FindAllString(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(expressionsOf(group), ""), -1) {
			queries[name] = true
		}
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries[strings.NewReplacer("$__rate_interval", "5m", "$namespace", wellknown.Namespace).Replace(target.Expr)] = true
		}
	}
	m.queries = slices.Sorted(maps.Keys(queries))
	return m
}

func expressionsOf(group map[string]any) string {
	var all []string
	rules, _ := group["rules"].([]any)
	for _, r := range rules {
		if rule, ok := r.(map[string]any); ok {
			all = append(all, fmt.Sprint(rule["expr"]))
		}
	}
	return strings.Join(all, "\n")
}

func readText(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustDecode(t *testing.T, text string, to any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), to); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

func mustEncode(t *testing.T, value any) []byte {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// target is a pod's endpoint.
type target struct {
	node, address string
	port          int32
	path          string
	honorLabels   bool
	relabelings   []map[string]any
	labels        map[string]string // as the operator gives them
}

// targets returns the targets of a monitor.
func (m serviceMonitor) targets(endpoints []discoveryv1.EndpointSlice) []target {
	var all []target
	for _, slice := range endpoints {
		for _, e := range m.Spec.Endpoints {
			i := slices.IndexFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return *p.Name == e.Port })
			if i < 0 {
				continue
			}
			var relabelings []map[string]any
			for _, r := range e.Relabelings {
				relabelings = append(relabelings, map[string]any{"source_labels": r.SourceLabels, "target_label": r.TargetLabel})
			}
			for _, pod := range slice.Endpoints {
				all = append(all, target{
					node: *pod.NodeName, address: pod.Addresses[0], port: *slice.Ports[i].Port, path: e.Path,
					honorLabels: e.HonorLabels, relabelings: relabelings,
					labels: map[string]string{
						"job": slice.Labels[discoveryv1.LabelServiceName], "service": slice.Labels[discoveryv1.LabelServiceName],
						"namespace": slice.Namespace, "pod": pod.TargetRef.Name, "endpoint": e.Port,
						"__meta_kubernetes_pod_node_name": *pod.NodeName,
					},
				})
			}
		}
	}
	return all
}

// configOf has Prometheus read all targets from one server, each under the name of its pod.
func configOf(targets []target, server, interval string) map[string]any {
	var jobs []any
	for i, t := range targets {
		labels := maps.Clone(t.labels)
		labels["__metrics_path__"] = "/" + t.labels["pod"]
		jobs = append(jobs, map[string]any{
			"job_name": fmt.Sprint("pod-", i), "honor_labels": t.honorLabels, "relabel_configs": t.relabelings,
			"static_configs": []any{map[string]any{"targets": []string{server}, "labels": labels}},
		})
	}
	return map[string]any{
		"global":     map[string]any{"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
		"rule_files": []string{"rules.yaml"}, "scrape_configs": jobs,
	}
}

// prometheus is a running one.
type prometheus struct {
	*testing.T
	url string
}

// startPrometheus runs Debian's Prometheus until the end of the test.
func startPrometheus(t *testing.T, programs string, rules []byte, config map[string]any) prometheus {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{"rules.yaml": rules, "prometheus.yaml": mustEncode(t, config)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(programs, "prometheus"),
		"--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // an interrupted test cleans nothing up
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // may have exited
		_ = cmd.Wait()         // says that it was killed
		_ = log.Close()
		if t.Failed() {
			t.Log(readText(t, dir, "log"))
		}
	})
	return prometheus{t, "http://" + address}
}

// get decodes the data of an answer of the HTTP API.
func (p prometheus) get(path string, to any) error {
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", response.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", response.Status, answer.Error)
	}
	return json.Unmarshal(answer.Data, to)
}

// count returns the number of series that a query has now.
func (p prometheus) count(query string) (int, error) {
	var data struct{ Result []any }
	err := p.get("/api/v1/query?query="+url.QueryEscape(query), &data)
	return len(data.Result), err
}

func (p prometheus) targetsDown(want int) string {
	up, err := p.count("up == 1")
	if err != nil || up != want {
		return fmt.Sprintf("%d of %d are up, %v", up, want, err)
	}
	return ""
}

// ask asks all queries. missing have an error, or no data for no known reason; wrong are known to be empty,
// and have data, or no query.
func (p prometheus) ask(queries []string, empty map[string]string) (missing, wrong []string) {
	for _, query := range queries {
		series, err := p.count(query)
		switch {
		case err != nil:
			missing = append(missing, fmt.Sprintf("%s: %v", query, err))
		case series == 0 && empty[query] == "":
			missing = append(missing, query+": no data")
		case series > 0 && empty[query] != "":
			wrong = append(wrong, fmt.Sprintf("%s has %d series: %s", query, series, empty[query]))
		}
	}
	for query := range empty {
		if !slices.Contains(queries, query) {
			wrong = append(wrong, query+": no panel and no alert asks that")
		}
	}
	return missing, wrong
}

// rulesFailing returns the alerts that have not been evaluated, or not without an error.
func (p prometheus) rulesFailing() string {
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := p.get("/api/v1/rules", &data); err != nil {
		return err.Error()
	}
	var failing []string
	rules := 0
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			rules++
			if rule.Health != "ok" {
				failing = append(failing, strings.Join([]string{rule.Name, rule.Health, rule.LastError}, " "))
			}
		}
	}
	if rules == 0 {
		return "there are no rules"
	}
	return strings.Join(failing, "\n")
}

// TestMonitoringIsRead needs no lab.
func TestMonitoringIsRead(t *testing.T) {
	m := readMonitoring(t, filepath.Join("../..", monitoringFolder))
	if !strings.Contains(m.service, "efs-stunnel-metrics") || len(m.monitors) != 2 || !strings.Contains(string(m.rules), "EFSTunnelDown") {
		t.Errorf("got service %q, %d monitors, and rules\n%s", m.service, len(m.monitors), m.rules)
	}
	for _, query := range []string{"up", "efs_stunnel_node_tunnel_up", `sum by (name) (workqueue_depth{namespace="efs-stunnel"})`} {
		if !slices.Contains(m.queries, query) {
			t.Errorf("%q is not asked", query)
		}
	}
	for _, query := range m.queries {
		if strings.Contains(query, "$") {
			t.Errorf("%s has a variable of the dashboard", query)
		}
	}
	metrics := readText(t, "../../docs/reference/metrics.md")
	for _, optional := range regexp.MustCompile("(?m)^\\| `(\\w+)` .*; absent without --").FindAllStringSubmatch(metrics, -1) {
		for _, query := range m.queries {
			if strings.Contains(query, optional[1]) && emptyInTheLab[query] == "" {
				t.Errorf("emptyInTheLab lacks %q, which the lab's installation does not have", query)
			}
		}
	}
	for query := range emptyInTheLab {
		if !slices.Contains(m.queries, query) {
			t.Errorf("emptyInTheLab has %q, which nothing asks", query)
		}
	}
}

// TestPrometheusIsAsked runs a real one on pods that do not exist; PROMETHEUS_PATH is its folder.
func TestPrometheusIsAsked(t *testing.T) {
	programs := os.Getenv("PROMETHEUS_PATH")
	if programs == "" {
		t.Skip("PROMETHEUS_PATH names no folder with prometheus")
	}
	pods := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "here{namespace=%q} 1\n", r.URL.Path)
	}))
	t.Cleanup(pods.Close)
	name, port := "http", int32(20488)
	var endpoints []discoveryv1.Endpoint
	for _, node := range []string{"node-1", "node-2"} {
		endpoint := discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, NodeName: &node}
		mustDecode(t, "{kind: Pod, name: pod-of-"+node+"}", &endpoint.TargetRef)
		endpoints = append(endpoints, endpoint)
	}
	slice := discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}, Endpoints: endpoints}
	slice.Namespace, slice.Labels = wellknown.Namespace, map[string]string{discoveryv1.LabelServiceName: "efs-stunnel-metrics"}
	m := readMonitoring(t, filepath.Join("../..", monitoringFolder))
	targets := m.monitors[1].targets([]discoveryv1.EndpointSlice{slice})
	p := startPrometheus(t, programs, m.rules, configOf(targets, pods.Listener.Addr().String(), "1s"))
	l := &lab{cluster: &cluster{T: t}}
	l.eventually("two targets, and all rules", func() string { return p.targetsDown(2) + p.rulesFailing() })

	queries := []string{
		`up{job="efs-stunnel-metrics", node="node-1", pod="pod-of-node-1"}`, `here{node="node-2", exported_namespace="/pod-of-node-2"}`,
		"nowhere", "known", "1 +",
	}
	missing, wrong := p.ask(queries, map[string]string{queries[0]: "it is down", "known": "it is not there", "else": "x"})
	if len(missing) != 2 || !strings.Contains(missing[1], "parse error") {
		t.Errorf("missing: %q", missing)
	}
	want := []string{queries[0] + " has 1 series: it is down", "else: no panel and no alert asks that"}
	if diff := cmp.Diff(append([]string{"nowhere: no data"}, want...), append(missing[:1], wrong...)); diff != "" {
		t.Errorf("answers mismatch (-want +got):\n%s", diff)
	}
}
