package layout

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// DirectionRules apply to the product's module. Some of their folders may not exist.
func DirectionRules() []Rule {
	return []Rule{
		pureImports,     // cmd -> pkg/controller -> pure packages, never back
		pureEffects,     // time and concurrency are the caller's
		engineSeparate,  // the manager links operations, and not the engine that carries them out
		loopsSeparate,   // loops communicate through API objects only
		noImportOfCmd,   // wiring is at the top
		oneEFSClient,    // the AWS boundary is one package
		smallMountjob,   // the program that runs as root links nothing of third parties
		smallSupervisor, // what keeps tunnels up needs neither API nor cloud
	}
}

// isPure says which folders have no effects.
func isPure(folder string) bool {
	if within(folder, "pkg/efs/awsefs") {
		return false
	}
	for _, pure := range []string{
		"pkg/wellknown", "pkg/efs", "pkg/ports", "pkg/volumes",
		"pkg/operations", "pkg/requests", "pkg/mountjobs", "pkg/staticvolumes", "pkg/stunnelcfg", "pkg/clientcert",
		"pkg/controller/lifecycle", "pkg/controller/targets",
		"pkg/tunnel/spec", "pkg/tunnel/routing", "pkg/tunnel/ephemeral",
	} {
		if within(folder, pure) {
			return true
		}
	}
	return false
}

// pureImports does not check tests: those may read golden files.
func pureImports(p Package) []string {
	if !isPure(p.folder()) {
		return nil
	}
	var findings []string
	for _, f := range p.built() {
		f.eachImport(func(importPath string, pos token.Pos) {
			folder, ours := inModule(importPath)
			if ours && !isPure(folder) || hasEffects(importPath) {
				findings = append(findings, p.at(f, pos, "pure package imports %s", importPath))
			}
		})
	}
	return findings
}

// hasEffects says which packages of other modules a pure package may not import.
func hasEffects(importPath string) bool {
	if importPath == "net/netip" || importPath == "net/url" {
		return false // plain values
	}
	for _, forbidden := range []string{
		"k8s.io/client-go", "github.com/aws", "log", "net", "os",
	} {
		if within(importPath, forbidden) {
			return true
		}
	}
	return false
}

// pureEffects does not check fakes: they may simulate a clock.
func pureEffects(p Package) []string {
	folder := p.folder()
	if !isPure(folder) || strings.HasSuffix(path.Base(folder), "test") {
		return nil
	}
	var findings []string
	for _, f := range p.built() {
		f.eachUse("time", func(name string, pos token.Pos) {
			if slices.Contains([]string{"Now", "Since", "Until", "Sleep"}, name) {
				findings = append(findings, p.at(f, pos, "pure package uses time.%s; take the time as an argument", name))
			}
		})
		for node := range ast.Preorder(f.tree) {
			if _, ok := node.(*ast.GoStmt); ok {
				findings = append(findings, p.at(f, node.Pos(), "pure package starts a goroutine"))
			}
		}
	}
	return findings
}

// engineSeparate does not check tests, and nothing below test: they simulate a mount Job's pod.
func engineSeparate(p Package) []string {
	for _, folder := range []string{"cmd/mountjob", "pkg/mountjob", "test"} {
		if within(p.folder(), folder) {
			return nil
		}
	}
	var findings []string
	for _, f := range p.built() {
		f.eachImport(func(importPath string, pos token.Pos) {
			if within(importPath, Module+"/pkg/mountjob") {
				findings = append(findings, p.at(f, pos, "imports %s; only cmd/mountjob links the engine", importPath))
			}
		})
	}
	return findings
}

func loopsSeparate(p Package) []string {
	own, ok := loopOf(p.folder())
	if !ok {
		return nil
	}
	var findings []string
	for _, f := range p.Files {
		f.eachImport(func(importPath string, pos token.Pos) {
			folder, _ := inModule(importPath)
			if other, ok := loopOf(folder); ok && other != own {
				findings = append(findings, p.at(f, pos, "loop %s imports loop %s", own, other))
			}
		})
	}
	return findings
}

// loopOf names the control loop of a folder. What the loops share, and what starts them, belongs to
// none.
func loopOf(folder string) (loop string, ok bool) {
	rest, ok := strings.CutPrefix(folder, "pkg/controller/")
	loop, _, _ = strings.Cut(rest, "/")
	return loop, ok && slices.Contains([]string{"discovery", "claims", "jobs", "sharedvolumes"}, loop)
}

func noImportOfCmd(p Package) []string {
	return forbid(p, func(importPath string) bool { return within(importPath, Module+"/cmd") })
}

func oneEFSClient(p Package) []string {
	if within(p.folder(), "pkg/efs/awsefs") {
		return nil
	}
	return forbid(p, func(importPath string) bool {
		return within(importPath, "github.com/aws/aws-sdk-go-v2/service/efs")
	})
}

// forbid finds imports of the kind, in tests too.
func forbid(p Package, kind func(importPath string) bool) []string {
	var findings []string
	for _, f := range p.Files {
		f.eachImport(func(importPath string, pos token.Pos) {
			if kind(importPath) {
				findings = append(findings, p.at(f, pos, "imports %s", importPath))
			}
		})
	}
	return findings
}

// smallMountjob allows the Go project's system calls, which copies need beside package syscall. It also checks the packages that mountjob is made of: there a finding names the one.
func smallMountjob(p Package) []string {
	parts := []string{"cmd/mountjob", "pkg/mountjob", "pkg/operations", "pkg/requests", "pkg/wellknown"}
	if !slices.ContainsFunc(parts, func(part string) bool { return within(p.folder(), part) }) {
		return nil
	}
	var findings []string
	for _, dep := range p.Deps {
		first, _, _ := strings.Cut(dep, "/")
		if _, ours := inModule(dep); !ours && strings.Contains(first, ".") && !within(dep, "golang.org/x/sys") {
			findings = append(findings, p.folder()+": links "+dep)
		}
	}
	return findings
}

func smallSupervisor(p Package) []string {
	if !within(p.folder(), "cmd/nodeagent-supervise") && !within(p.folder(), "pkg/tunnel/supervise") {
		return nil
	}
	var findings []string
	for _, dep := range p.Deps {
		if within(dep, "k8s.io/client-go") || within(dep, "k8s.io/api") || within(dep, "github.com/aws") {
			findings = append(findings, p.folder()+": links "+dep)
		}
	}
	return findings
}
