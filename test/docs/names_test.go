package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestEventsAreThoseOfThePrograms(t *testing.T) {
	expectSame(t, "events", stringConstants(t, "pkg/api/wellknown/events.go", "Event"),
		firstCodes(readPage(t, "docs/reference/events.md").text))
}

func TestAlertsAreThoseOfTheManifests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/kustomize/components/monitoring/rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert  string
					Labels map[string]string
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			want = append(want, rule.Alert+" "+rule.Labels["severity"])
		}
	}
	for _, row := range rows(readPage(t, "docs/reference/alerts.md").text) {
		got = append(got, strings.Join(codes(row[0]), "")+" "+row[1])
	}
	expectSame(t, "alerts", want, got)
}

// expectSame compares two sets of names; a repeated name is an error, too.
func expectSame(t *testing.T, what string, want, got []string) {
	t.Helper()
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("%d %s; mismatch (-program +page):\n%s", len(want), what, diff)
	}
}

// stringConstants returns the values of a file's constants with a prefix in their names.
func stringConstants(t *testing.T, path, prefix string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for node := range ast.Preorder(file) {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, prefix) || len(spec.Values) != 1 {
			continue
		}
		if value, ok := text(spec.Values[0]); ok {
			values = append(values, value)
		}
	}
	return values
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
