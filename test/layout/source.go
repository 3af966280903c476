package layout

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// MaxLines is the most lines of a file.
const MaxLines = 400

// Rule checks one package and returns its findings, one string each.
type Rule func(Package) []string

// SourceRules apply to every module of the repository.
func SourceRules() []Rule {
	return []Rule{
		onePackageComment, // every package says what it is, once
		noInit,            // nothing happens because of an import
		noSleepInTests,    // tests wait for a condition, not for a time
		plainComments,     // a comment says what a thing does, as in client-go, cert-manager and karpenter
		nounFileNames,     // a file is named for its content
		shortFiles,        // which is one thing
	}
}

// Check applies the rules to every package, and returns the sorted findings.
func Check(pkgs []Package, rules []Rule) []string {
	var findings []string
	for _, p := range pkgs {
		for _, rule := range rules {
			findings = append(findings, rule(p)...)
		}
	}
	slices.Sort(findings)
	return findings
}

// onePackageComment expects it in a test file only where all files are tests.
func onePackageComment(p Package) []string {
	files := p.built()
	if len(files) == 0 {
		files = p.Files
	}
	var findings []string
	comments := 0
	for _, f := range files {
		if f.tree.Doc == nil {
			continue
		}
		comments++
		want := "Package " + strings.TrimSuffix(f.tree.Name.Name, "_test")
		if f.tree.Name.Name == "main" {
			want = "Command " + path.Base(p.ImportPath)
		}
		words := strings.Fields(f.tree.Doc.Text())
		if got := strings.Join(words[:min(2, len(words))], " "); got != want {
			findings = append(findings, p.at(f, f.tree.Doc.Pos(), "package comment starts %q, not %q", got, want))
		}
		if comments > 1 {
			findings = append(findings, p.at(f, f.tree.Doc.Pos(), "second package comment"))
		}
	}
	if comments == 0 && len(files) > 0 {
		findings = append(findings, p.at(files[0], files[0].tree.Pos(), "no package comment"))
	}
	return findings
}

func noInit(p Package) []string {
	var findings []string
	for _, f := range p.Files {
		for _, decl := range f.tree.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && fn.Recv == nil && fn.Name.Name == "init" {
				findings = append(findings, p.at(f, fn.Pos(), "init function; cmd calls constructors instead"))
			}
		}
	}
	return findings
}

func noSleepInTests(p Package) []string {
	var findings []string
	for _, f := range p.Files {
		if !f.isTest() {
			continue
		}
		f.eachUse("time", func(name string, pos token.Pos) {
			if name == "Sleep" {
				findings = append(findings, p.at(f, pos, "test sleeps; use testing/synctest, or wait for the event"))
			}
		})
	}
	return findings
}

// nounFileNames checks the part before the first _, so that helpers_test.go and util_linux.go count, too.
func nounFileNames(p Package) []string {
	var findings []string
	for _, f := range p.Files {
		noun, _, _ := strings.Cut(strings.TrimSuffix(f.Name, ".go"), "_")
		switch noun {
		case "util", "utils", "helper", "helpers":
			findings = append(findings, p.at(f, f.tree.FileStart, "file named for nothing; name its noun"))
		}
	}
	return findings
}

func shortFiles(p Package) []string {
	var findings []string
	for _, f := range p.Files {
		if f.Lines > MaxLines && !ast.IsGenerated(f.tree) {
			findings = append(findings, p.at(f, f.tree.FileEnd, "%d lines, more than %d", f.Lines, MaxLines))
		}
	}
	return findings
}
