package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"strings"
)

const (
	parametersPage   = "docs/reference/class-parameters.md"
	parametersFolder = "pkg/volumes"
)

// addParameters writes the parameters of classes, with the comments above them in the tables of the parser.
func addParameters(fresh map[string]string) error {
	values := map[string]string{}
	for _, folder := range []string{namesFolder, parametersFolder} {
		all, err := constants(folder)
		if err != nil {
			return err
		}
		maps.Copy(values, defaultsOf(all))
	}
	for _, table := range []struct{ title, file, function string }{
		{"parameters of classes", "class.go", "parameters"},
		{"parameters of classes of the driver", "driverclass.go", "driverParameters"},
	} {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, parametersFolder+"/"+table.file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parsing the table of parameters: %w", err)
		}
		text, err := renderParameters(files, file, table.function, values)
		if err != nil {
			return err
		}
		if err := insert(fresh, parametersPage, table.title, text); err != nil {
			return err
		}
	}
	return linkHeadings(fresh, parametersPage)
}

// defaultsOf returns the values of constants as a class has them: also numbers, and modes as chmod takes them.
func defaultsOf(all []name) map[string]string {
	values := map[string]string{}
	for _, n := range all {
		values[n.constant] = cmp.Or(n.value, strings.Replace(n.expression, "0o", "0", 1))
	}
	return values
}

var defaultOf = regexp.MustCompile(` \((?:default (.+)|(required))\)$`)

// renderParameters makes a row of each comment in the table that a function returns: of the parameters below it.
func renderParameters(files *token.FileSet, file *ast.File, function string, values map[string]string) (string, error) {
	var text strings.Builder
	text.WriteString("\n| parameter | default | meaning |\n|---|---|---|\n")
	rows := rowsOf(file, function)
	for i := 0; i < len(rows); {
		comment := commentAbove(files, file, rows[i])
		if comment == "" {
			return "", fmt.Errorf("%s has a parameter without a comment: %v", function, parameterName(rows[i], values))
		}
		standard := ""
		if found := defaultOf.FindStringSubmatch(comment); found != nil {
			comment, standard = strings.TrimSuffix(comment, found[0]), cmp.Or(found[2], asClass(found[1], values))
		} else if isBoolean(rows[i]) {
			standard = "`false`"
		}
		names := []string{parameterName(rows[i], values)}
		for i++; i < len(rows) && commentAbove(files, file, rows[i]) == ""; i++ {
			names = append(names, parameterName(rows[i], values))
		}
		fmt.Fprintf(&text, "| %s | %s | %s |\n", strings.Join(names, ", "), cmp.Or(standard, "–"), cell(comment))
	}
	return text.String() + "\n", nil
}

// asClass returns defaults in place of their constants, and what is no word of English as code.
func asClass(text string, values map[string]string) string {
	words := strings.Split(text, ", ")
	for i, word := range words {
		if value := cmp.Or(values[word], word); value != word || !plainWord.MatchString(word) || word == "true" || word == "false" {
			words[i] = code(value)
		}
	}
	return strings.Join(words, ", ")
}

var plainWord = regexp.MustCompile(`^[a-z]+$`)

// rowsOf returns the elements of the list of parameters that a function returns.
func rowsOf(file *ast.File, function string) (rows []*ast.CompositeLit) {
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		for node := range ast.Preorder(f.Body) {
			if row, ok := node.(*ast.CompositeLit); ok && row.Type == nil && len(row.Elts) == 2 {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// commentAbove returns the comment that ends in the line before a row's.
func commentAbove(files *token.FileSet, file *ast.File, row *ast.CompositeLit) string {
	for _, comment := range file.Comments {
		if files.Position(comment.End()).Line == files.Position(row.Pos()).Line-1 {
			return strings.Join(strings.Fields(comment.Text()), " ")
		}
	}
	return ""
}

func parameterName(row *ast.CompositeLit, values map[string]string) string {
	if constant, ok := row.Elts[0].(*ast.Ident); ok {
		return code(values[constant.Name])
	}
	return code(strings.Join(literals(row.Elts[0]), ""))
}

// isBoolean reports whether a parameter is set by a function whose argument returns a pointer to a bool.
func isBoolean(row *ast.CompositeLit) bool {
	for node := range ast.Preorder(row.Elts[1]) {
		if pointer, ok := node.(*ast.StarExpr); ok && expression(pointer.X) == "bool" {
			return true
		}
	}
	return false
}
