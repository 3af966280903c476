//go:build linux && !race

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/clock"
	"gnuthought.com/efs-stunnel/pkg/kube/forbidden"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/manager/workers"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/server"
)

// metric is the documentation of a metric on the page.
type metric struct {
	Labels []string // sorted
}

func TestMetricsAreThoseOfThePrograms(t *testing.T) {
	want := registered(t)
	for prefix, folders := range map[string][]string{
		"efs_stunnel_manager_": {"cmd/manager", "pkg/kube/client"}, "efs_stunnel_node_": {"pkg/kube/client"},
	} {
		for _, folder := range folders {
			for name, labels := range written(t, folder) {
				want[prefix+name] = metric{Labels: labels}
			}
		}
	}
	got := map[string]metric{}
	for _, row := range rows(readPage(t, "docs/reference/metrics.md").text) {
		name := codes(row[0])
		if len(name) != 1 || !strings.HasPrefix(name[0], "efs_stunnel_") {
			continue // of the tables of reasons
		}
		got[name[0]] = metric{Labels: sorted(codes(row[2]))}
		if counts := strings.HasSuffix(name[0], "_total"); counts != (row[1] == "counter") {
			t.Errorf("%s is a %s", name[0], row[1])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 20 {
		t.Errorf("%d metrics; mismatch (-program +page):\n%s", len(want), diff)
	}
}

// registered returns the metrics of everything that has a registry as an option, without running it.
func registered(t *testing.T) map[string]metric {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	registry, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	if _, err := loops.New(client, nil, loops.Options{
		Settings: loops.Settings{
			Settings: decide.Settings{Provisioner: wellknown.DefaultProvisioner}, PollingInterval: time.Minute,
			FinishBinding: true,
			Range:         ports.Range{Base: wellknown.DefaultBasePort, Count: 1},
			Jobs:          mountjobs.Settings{Namespace: wellknown.Namespace, Linger: time.Minute},
		},
		Workers: workers.Options{Host: wellknown.LoopbackAddress},
		Events:  record.NewFakeRecorder(1), Metrics: registry, Log: log,
	}); err != nil {
		t.Fatal(err)
	}
	server.NewMetrics(registry, t.TempDir())
	agent.New(agent.Options{Events: record.NewFakeRecorder(1), Metrics: registry, Log: log})
	for _, namespace := range []string{"efs_stunnel_manager", "efs_stunnel_node"} {
		registry.MustRegister(forbidden.New(namespace, log, time.Now))
	}
	registry.MustRegister(clock.New("efs_stunnel_manager", time.Now, log))
	return described(t, registry)
}

var description = regexp.MustCompile(`fqName: "(\w+)", help: ".*", constLabels: \{\}, variableLabels: \{([\w,]*)\}`)

func described(t *testing.T, collector prometheus.Collector) map[string]metric {
	t.Helper()
	descriptions, all := make(chan *prometheus.Desc), map[string]metric{}
	go func() {
		defer close(descriptions)
		collector.Describe(descriptions)
	}()
	for d := range descriptions {
		m := description.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("a description has no known form: %s", d)
		}
		all[m[1]] = metric{Labels: sorted(strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' }))}
	}
	return all
}

// written returns the metrics in the source of a program, by name: a main package cannot be imported.
func written(t *testing.T, folder string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for node := range ast.Preorder(source(t, folder)) {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			continue
		}
		options, ok := call.Args[0].(*ast.CompositeLit)
		if !ok || !isOptions(options) {
			continue
		}
		name, labels := "", stringsOf(call.Args[1])
		for _, element := range options.Elts {
			pair, ok := element.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			switch key, _ := pair.Key.(*ast.Ident); key.Name {
			case "Name":
				name, _ = text(pair.Value)
			case "ConstLabels":
				labels = stringsOf(pair.Value)
			}
		}
		found[name] = sorted(labels)
	}
	if len(found) == 0 {
		t.Fatalf("%s makes no metric", folder)
	}
	return found
}

// source returns the syntax tree of all files of a folder but tests.
func source(t *testing.T, folder string) ast.Node {
	t.Helper()
	whole := &ast.File{Name: ast.NewIdent("main")}
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			whole.Decls = append(whole.Decls, file.Decls...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// isOptions reports whether the literal is a prometheus.GaugeOpts, CounterOpts or similar.
func isOptions(literal *ast.CompositeLit) bool {
	kind, ok := literal.Type.(*ast.SelectorExpr)
	return ok && strings.HasSuffix(kind.Sel.Name, "Opts")
}

// stringsOf returns the elements of a list of strings, or the keys of a map, none for anything else.
func stringsOf(expression ast.Expr) []string {
	literal, ok := expression.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var all []string
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			element = pair.Key
		}
		if value, ok := text(element); ok {
			all = append(all, value)
		}
	}
	return all
}

func sorted(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	return slices.Sorted(slices.Values(names))
}

// text returns the value of a string literal.
func text(expression ast.Expr) (string, bool) {
	literal, ok := expression.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(literal.Value)
	return value, err == nil
}
