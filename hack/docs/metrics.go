package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const (
	metricsPage    = "docs/reference/metrics.md"
	managerMetrics = "efs_stunnel_manager_"
	nodeMetrics    = "efs_stunnel_node_"
	serverMetrics  = "efs_stunnel_nfs_server_"
)

// metric is a row of the page.
type metric struct {
	name, kind, help string
	labels           []string
}

// metricFolders lists the source of metrics in the order of the page, with what their names begin with there.
func metricFolders() [][2]string {
	return [][2]string{
		{"cmd/manager", managerMetrics}, {"pkg/kube", managerMetrics}, {"pkg/manager", managerMetrics},
		{"pkg/kube/client", nodeMetrics}, {"pkg/kube/forbidden", nodeMetrics}, {"pkg/node", nodeMetrics}, {"pkg/server", serverMetrics},
	}
}

// addMetrics writes the metrics of the programs, with the help that Prometheus shows. A test in test/docs compares names
// and labels with what the programs register.
func addMetrics(fresh map[string]string) error {
	var text strings.Builder
	text.WriteString("\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, folder := range metricFolders() {
		found, err := metricsIn(folder[0])
		if err != nil {
			return err
		}
		for _, m := range found {
			if !strings.HasPrefix(m.name, "efs_stunnel_") {
				m.name = folder[1] + m.name
			}
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labelText(), cell(strings.TrimSuffix(m.help, ".")))
		}
	}
	return insert(fresh, metricsPage, "metrics", text.String()+"\n")
}

func (m metric) labelText() string {
	if len(m.labels) == 0 {
		return "–"
	}
	return "`" + strings.Join(m.labels, "` `") + "`"
}

// metricsIn returns the metrics that the files of a folder define, in their order.
func metricsIn(folder string) (all []metric, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			all = append(all, metricsOf(file)...)
		}
		return err
	})
	return all, err
}

// metricsOf finds a name, its help and labels beside each other: in the options of Prometheus, or in the arguments of
// what makes a description of them.
func metricsOf(file *ast.File) (all []metric) {
	values, lists := definitions(file)
	for node := range ast.Preorder(file) {
		parts := partsOf(node)
		if len(parts) < 2 {
			continue
		}
		m := metric{name: strings.TrimPrefix(resolve(expression(parts[0]), values), "_"), help: strings.Join(literals(parts[1]), "")}
		if !metricName.MatchString(m.name) || !strings.HasSuffix(m.help, ".") {
			continue
		}
		m.kind = kindOf(node, m.name)
		for _, part := range parts[2:] {
			m.labels = append(m.labels, literals(part)...)
			if list, ok := part.(*ast.Ident); ok {
				m.labels = append(m.labels, lists[list.Name]...)
			}
		}
		all = append(all, m)
	}
	return all
}

// definitions returns the expressions of constants and variables, and the strings of those that are lists.
func definitions(file *ast.File) (values map[string]string, lists map[string][]string) {
	values, lists = map[string]string{}, map[string][]string{}
	for node := range ast.Preorder(file) {
		if spec, ok := node.(*ast.ValueSpec); ok && len(spec.Values) == len(spec.Names) {
			for i, name := range spec.Names {
				values[name.Name], lists[name.Name] = expression(spec.Values[i]), literals(spec.Values[i])
			}
		}
	}
	return values, lists
}

// partsOf returns the arguments of a call, with name, help and labels in place of options, or the elements of a literal.
func partsOf(node ast.Node) []ast.Expr {
	switch n := node.(type) {
	case *ast.CompositeLit:
		return n.Elts
	case *ast.CallExpr:
		if len(n.Args) == 0 {
			return nil
		}
		if options, ok := n.Args[0].(*ast.CompositeLit); ok {
			return append(optionValues(options), n.Args[1:]...)
		}
		return n.Args
	}
	return nil
}

var metricName = regexp.MustCompile(`^[a-z_]+_[a-z_]+$|^(leading|targets|forbidden)$`)

// kindOf returns the type of a metric, by its constructor or, where that is a description's, by its name.
func kindOf(node ast.Node, name string) string {
	constructor := ""
	if call, ok := node.(*ast.CallExpr); ok {
		if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
			constructor = selector.Sel.Name
		}
	}
	switch {
	case strings.HasPrefix(constructor, "NewHistogram"), strings.HasSuffix(name, "_duration_seconds"):
		return "histogram"
	case strings.HasSuffix(name, "_total"):
		return "counter"
	}
	return "gauge"
}

// optionValues returns name, help and constant labels of prometheus.GaugeOpts and similar.
func optionValues(options *ast.CompositeLit) []ast.Expr {
	values := map[string]ast.Expr{}
	for _, element := range options.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				values[key.Name] = pair.Value
			}
		}
	}
	if values["Name"] == nil || values["Help"] == nil {
		return nil
	}
	return []ast.Expr{values["Name"], values["Help"], values["ConstLabels"]}
}

// literals returns a string, or the strings of a list, or the keys of a map.
func literals(e ast.Expr) (all []string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			all = append(all, text)
		}
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				element = pair.Key
			}
			all = append(all, literals(element)...)
		}
	}
	return all
}
