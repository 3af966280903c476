package layout

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// definition matches a comment that defines a name by a clause, as in "X is what …", "X are those …" and "X says
// whether …".
var definition = regexp.MustCompile(`^\w+ (?:(?:is|are) (?:what|how|when|why|where|whether|that|those|who|which)|says? (?:what|how|when|why|where|whether|that|which|of))\b`)

// unconverted lists the folders whose comments are still to be rewritten. It only gets shorter.
func unconverted() []string {
	return []string{
		"pkg/api", "pkg/kube/election", "pkg/kube/events", "pkg/kube/forbidden",
		"pkg/manager/jobs", "pkg/manager/table", "pkg/manager/usage", "pkg/manager/workers",
		"pkg/mountjobs", "pkg/node", "pkg/ports", "pkg/program", "pkg/worker", "test/bench",
	}
}

func plainComments(p Package) []string {
	if slices.ContainsFunc(unconverted(), func(folder string) bool { return within(p.folder(), folder) }) {
		return nil
	}
	var findings []string
	for _, f := range p.Files {
		for _, comment := range f.declared() {
			first, _, _ := strings.Cut(comment.Text(), "\n")
			if start := definition.FindString(first); start != "" {
				findings = append(findings, p.at(f, comment.Pos(), "comment starts %q; write the name, a verb and the object", start))
			}
		}
	}
	return findings
}

// declared returns the doc comments of the file's declarations, also of those in groups.
func (f *File) declared() []*ast.CommentGroup {
	var all []*ast.CommentGroup
	for _, decl := range f.tree.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			all = append(all, d.Doc)
		case *ast.GenDecl:
			all = append(all, d.Doc)
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					all = append(all, s.Doc)
				case *ast.ValueSpec:
					all = append(all, s.Doc)
				}
			}
		}
	}
	return slices.DeleteFunc(all, func(comment *ast.CommentGroup) bool { return comment == nil })
}
