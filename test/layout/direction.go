package layout

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// DirectionRules apply to the product's module, which has these packages.
func DirectionRules(pkgs []Package) []Rule {
	return []Rule{
		noImportOfCmd,       // wiring is at the top
		floors,              // cmd -> rooms of programs -> kube, program, queue -> pure packages -> api
		pureImports,         // pure packages import nothing that has effects
		pureEffects,         // time and concurrency are the caller's
		engineSeparate,      // the manager links operations, and not the engine that carries them out
		loopsSeparate(pkgs), // loops communicate through API objects only
		oneEFSClient,        // the AWS boundary is one package
		smallMountjob,       // the program that runs as root links nothing of third parties
		smallSupervisor,     // what keeps tunnels up needs neither API nor cloud
		noSentenceMatched,   // what is wrong is a reason or a cause, not a piece of a sentence
	}
}

// The floors of the product: code imports what is below it, or in its own room. Rooms of api, of pure packages and of
// machinery may import others of their floor.
const (
	apiFloor = iota
	pureFloor
	machineryFloor
	programFloor
	cmdFloor
)

// floorOf returns the room and the floor of a folder of the product. Every room that is not named is pure.
func floorOf(folder string) (room string, floor int, ok bool) {
	first, rest, _ := strings.Cut(folder, "/")
	if first == "cmd" {
		return folder, cmdFloor, true
	}
	if first != "pkg" {
		return "", 0, false
	}
	room, _, _ = strings.Cut(rest, "/")
	switch room {
	case "api":
		return room, apiFloor, true
	case "kube", "program", "queue":
		return room, machineryFloor, true
	case "manager", "node", "plugin", "server", "worker":
		return room, programFloor, true
	}
	return room, pureFloor, true
}

// floors does not check tests: they play the other side.
func floors(p Package) []string {
	room, floor, ok := floorOf(p.folder())
	if !ok {
		return nil
	}
	return forbid(p, p.built(), func(importPath string) bool {
		folder, _ := inModule(importPath)
		other, below, ok := floorOf(folder)
		if !ok || other == room {
			return false
		}
		return below > floor || below == floor && floor >= programFloor
	})
}

// isPure reports whether a folder has no effects: all of the floors of api and of pure packages, but for AWS' own
// libraries, and what decides in the rooms of programs.
func isPure(folder string) bool {
	for _, effects := range []string{"pkg/efs/awsefs", "pkg/efs/awsconfig", "pkg/efs/topology"} {
		if within(folder, effects) {
			return false
		}
	}
	for _, pure := range []string{"pkg/manager/decide", "pkg/manager/targets", "pkg/node/clientcert", "pkg/node/lanes", "pkg/node/routing", "pkg/plugin/rebuild"} {
		if within(folder, pure) {
			return true
		}
	}
	_, floor, ok := floorOf(folder)
	return ok && floor <= pureFloor
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

// hasEffects reports whether a package of another module may not be imported by a pure package.
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
	for _, folder := range []string{"cmd/mountjob", "pkg/worker", "test"} {
		if within(p.folder(), folder) {
			return nil
		}
	}
	var findings []string
	for _, f := range p.built() {
		f.eachImport(func(importPath string, pos token.Pos) {
			if within(importPath, Module+"/pkg/worker") {
				findings = append(findings, p.at(f, pos, "imports %s; only cmd/mountjob links the engine", importPath))
			}
		})
	}
	return findings
}

// loopsSeparate finds the loops: they are the folders of the manager that have a controller.
func loopsSeparate(pkgs []Package) Rule {
	loops := map[string]bool{}
	for _, p := range pkgs {
		if rest, ok := strings.CutPrefix(p.folder(), "pkg/manager/"); ok && slices.ContainsFunc(p.Files, isController) {
			loops[rest] = true
		}
	}
	loopOf := func(folder string) string {
		rest, ok := strings.CutPrefix(folder, "pkg/manager/")
		if loop, _, _ := strings.Cut(rest, "/"); ok && loops[loop] {
			return loop
		}
		return ""
	}
	return func(p Package) []string {
		own := loopOf(p.folder())
		if own == "" {
			return nil
		}
		return forbid(p, p.Files, func(importPath string) bool {
			folder, _ := inModule(importPath)
			other := loopOf(folder)
			return other != "" && other != own
		})
	}
}

func isController(f *File) bool { return f.Name == "controller.go" }

func noImportOfCmd(p Package) []string {
	return forbid(p, p.Files, func(importPath string) bool { return within(importPath, Module+"/cmd") })
}

func oneEFSClient(p Package) []string {
	if within(p.folder(), "pkg/efs/awsefs") {
		return nil
	}
	return forbid(p, p.Files, func(importPath string) bool {
		return within(importPath, "github.com/aws/aws-sdk-go-v2/service/efs")
	})
}

// forbid finds imports of the kind.
func forbid(p Package, files []*File, kind func(importPath string) bool) []string {
	var findings []string
	for _, f := range files {
		f.eachImport(func(importPath string, pos token.Pos) {
			if kind(importPath) {
				findings = append(findings, p.at(f, pos, "imports %s", importPath))
			}
		})
	}
	return findings
}

// smallMountjob allows the Go project's own modules: system calls, groups of goroutines, rates. It also checks the packages that mountjob is made of: there a finding names the one.
func smallMountjob(p Package) []string {
	parts := []string{"cmd/mountjob", "pkg/worker", "pkg/api/operations", "pkg/api/requests", "pkg/api/wellknown"}
	if !slices.ContainsFunc(parts, func(part string) bool { return within(p.folder(), part) }) {
		return nil
	}
	var findings []string
	for _, dep := range p.Deps {
		first, _, _ := strings.Cut(dep, "/")
		if _, ours := inModule(dep); !ours && strings.Contains(first, ".") && !within(dep, "golang.org/x") {
			findings = append(findings, p.folder()+": links "+dep)
		}
	}
	return findings
}

func smallSupervisor(p Package) []string {
	if !within(p.folder(), "cmd/nodeagent-supervise") && !within(p.folder(), "pkg/node/supervise") && !within(p.folder(), "pkg/node/front") {
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

// noSentenceMatched refuses functions that look for something in an event's message. The kubelet's and the
// scheduler's sentences are excepted, in one package: there is no other source for them.
func noSentenceMatched(p Package) []string {
	if within(p.folder(), "pkg/mountjobs") {
		return nil
	}
	matchers := []string{"Contains", "HasPrefix", "HasSuffix", "Index", "Cut", "MatchString", "FindString", "FindStringSubmatch", "FindStringIndex"}
	var findings []string
	for _, f := range p.built() {
		for node := range ast.Preorder(f.tree) {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				continue
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if ok && slices.Contains(matchers, function.Sel.Name) && slices.ContainsFunc(call.Args, isEventMessage) {
				findings = append(findings, p.at(f, call.Pos(), "looks for something in an event's message; read its reason, or the annotation of its cause"))
			}
		}
	}
	return findings
}

// isEventMessage recognizes the field Message of a variable whose name is that of an event.
func isEventMessage(argument ast.Expr) bool {
	field, ok := argument.(*ast.SelectorExpr)
	if !ok || field.Sel.Name != "Message" {
		return false
	}
	variable, ok := field.X.(*ast.Ident)
	return ok && slices.Contains([]string{"e", "ev", "event"}, variable.Name)
}
