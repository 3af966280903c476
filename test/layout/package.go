// Package layout has the rules of the repository that a program can check: which package may import
// which, where comments must be, and what a file may not have. The rules are pure; the test reads the
// repository and applies them.
package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
)

// Module is the product's module; those below hack have paths below it.
const Module = "gnuthought.com/efs-stunnel"

// Package is one folder with Go files.
type Package struct {
	ImportPath string
	Files      []*File  // all of the folder: tests, and what build constraints leave out
	Deps       []string // import paths that it links, directly or not; nil if not asked for
}

// File is one parsed Go file.
type File struct {
	Name  string // in its folder
	Lines int
	fset  *token.FileSet
	tree  *ast.File
}

// ParseFile reads the text of a file.
func ParseFile(name string, source []byte) (*File, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parsing Go file: %w", err)
	}
	return &File{Name: name, Lines: bytes.Count(source, []byte("\n")), fset: fset, tree: tree}, nil
}

// folder returns the package's path in the repository, "." for the root.
func (p Package) folder() string {
	if rest, ok := strings.CutPrefix(p.ImportPath, Module+"/"); ok {
		return rest
	}
	return "."
}

// at formats a finding so that editors and terminals make a link of its position.
func (p Package) at(f *File, pos token.Pos, format string, args ...any) string {
	position := fmt.Sprintf("%s:%d", path.Join(p.folder(), f.Name), f.fset.Position(pos).Line)
	return position + ": " + fmt.Sprintf(format, args...)
}

// built returns the files that are not tests.
func (p Package) built() []*File {
	var files []*File
	for _, f := range p.Files {
		if !f.isTest() {
			files = append(files, f)
		}
	}
	return files
}

func (f *File) isTest() bool { return strings.HasSuffix(f.Name, "_test.go") }

// eachImport calls visit with the path of every import.
func (f *File) eachImport(visit func(importPath string, pos token.Pos)) {
	for _, spec := range f.tree.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has checked it
		}
		visit(importPath, spec.Pos())
	}
}

// eachUse calls visit with every mention of a name of an imported package, as in time.Sleep.
func (f *File) eachUse(importPath string, visit func(name string, pos token.Pos)) {
	local := ""
	for _, spec := range f.tree.Imports {
		if spec.Path.Value != strconv.Quote(importPath) {
			continue
		}
		local = path.Base(importPath)
		if spec.Name != nil {
			local = spec.Name.Name
		}
	}
	if local == "" {
		return
	}
	for node := range ast.Preorder(f.tree) {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			continue
		}
		if x, ok := selector.X.(*ast.Ident); ok && x.Name == local {
			visit(selector.Sel.Name, selector.Pos())
		}
	}
}

// within reports whether a path is a folder or lies below it.
func within(importPath, folder string) bool {
	return importPath == folder || strings.HasPrefix(importPath, folder+"/")
}

// inModule returns the folder of an import path of this repository.
func inModule(importPath string) (folder string, ok bool) {
	return strings.CutPrefix(importPath, Module+"/")
}
