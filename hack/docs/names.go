package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// kinds are the tables of the page of names, by how the names of their constants begin.
var kinds = []string{"Annotation", "Label", "Finalizer", "Taint"}

// name is a key that programs and users share.
type name struct {
	constant   string
	kind       string // the type, "" for a string
	value      string
	expression string // of the value, which may be a number
	meaning    string
}

// constants reads the constants of a package whose values are strings, with their comments.
func constants(folder string) ([]name, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("listing the files of %s: %w", folder, err)
	}
	var found []name
	values := map[string]string{} // expressions
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", path, err)
		}
		for _, declaration := range file.Decls {
			if group, ok := declaration.(*ast.GenDecl); ok && group.Tok == token.CONST {
				found = append(found, collect(group, values)...)
			}
		}
	}
	for i := range found {
		found[i].expression = values[found[i].constant]
		found[i].value = resolve(found[i].expression, values)
	}
	return found, nil
}

// collect returns the constants of a declaration without their values, whose expressions it stores.
func collect(group *ast.GenDecl, values map[string]string) (found []name) {
	for _, one := range group.Specs {
		spec, ok := one.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			continue
		}
		text := spec.Doc.Text() + spec.Comment.Text()
		if text == "" && strings.HasPrefix(group.Doc.Text(), spec.Names[0].Name) {
			text = group.Doc.Text()
		}
		found = append(found, name{constant: spec.Names[0].Name, kind: expression(spec.Type), meaning: strings.Join(strings.Fields(text), " ")})
		values[spec.Names[0].Name] = expression(spec.Values[0])
	}
	return found
}

// expression writes a sum of literals and constants with spaces between them.
func expression(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Value
	case *ast.Ident:
		return e.Name
	case *ast.BinaryExpr:
		return expression(e.X) + " " + expression(e.Y)
	}
	return ""
}

// resolve returns the value of an expression whose names are those of other expressions.
func resolve(expression string, values map[string]string) string {
	var all strings.Builder
	for word := range strings.FieldsSeq(expression) {
		if literal, err := strconv.Unquote(word); err == nil {
			all.WriteString(literal)
		} else if value, ok := values[word]; ok && value != word {
			all.WriteString(resolve(value, values))
		}
	}
	return all.String()
}

func valuesOf(all []name) map[string]string {
	values := map[string]string{}
	for _, n := range all {
		values[n.constant] = n.value
	}
	return values
}

var identifier = regexp.MustCompile(`\b[A-Z][A-Za-z]+\b`)

// renderNames makes a table of the constants whose names begin with a kind.
func renderNames(all []name, kind string) string {
	values := valuesOf(all)
	var text strings.Builder
	fmt.Fprintf(&text, "\n| %s | meaning |\n|---|---|\n", strings.ToLower(kind))
	for _, n := range all {
		if strings.HasPrefix(n.constant, kind) {
			fmt.Fprintf(&text, "| `%s` | %s |\n", n.value, cell(cmp.Or(meaning(n, values), "–")))
		}
	}
	return text.String() + "\n"
}

// meaning returns a constant's comment without the constant's own name, and with the values of other constants.
func meaning(n name, values map[string]string) string {
	text := n.meaning
	if rest, ok := strings.CutPrefix(text, n.constant); ok && !strings.HasPrefix(rest, " and ") {
		text = strings.TrimPrefix(strings.TrimLeft(rest, ",: "), "is ")
	}
	return identifier.ReplaceAllStringFunc(text, func(word string) string {
		if value := values[word]; strings.ContainsAny(word[1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") && value != "" {
			return "`" + value + "`"
		}
		return word
	})
}
