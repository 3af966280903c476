package layout_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/test/layout"
)

const awsEFS = "github.com/aws/aws-sdk-go-v2/service/efs"

// TestRulesFindViolationsOnly: each rule has a case with findings and, where it has a limit, one without.
func TestRulesFindViolationsOnly(t *testing.T) {
	tests := map[string]struct {
		folder string
		files  map[string]string // name -> text
		deps   []string
		want   []string // the findings' endings
	}{
		"a package comment is wanted": {
			folder: "pkg/ports", files: text("package ports"),
			want: []string{"file.go:1: no package comment"},
		},
		"a package comment starts with the name": {
			folder: "pkg/ports", files: text("// Copyright us.\npackage ports"),
			want: []string{`package comment starts "Copyright us.", not "Package ports"`},
		},
		"a program's comment names the command": {
			folder: "cmd/manager", files: text("// Package main manages.\npackage main"),
			want: []string{`package comment starts "Package main", not "Command manager"`},
		},
		"a second package comment is too many": {
			folder: "pkg/ports",
			files: map[string]string{
				"a.go": "// Package ports is.\npackage ports",
				"b.go": "// Package ports is too.\npackage ports",
			},
			want: []string{"b.go:1: second package comment"},
		},
		"a program's comment may be the only one": {
			folder: "cmd/manager",
			files: map[string]string{
				"main.go":    "// Command manager manages.\npackage main",
				"options.go": "package main",
			},
		},
		"a folder of tests has its comment in a test": {
			folder: "test/e2e",
			files:  map[string]string{"e2e_test.go": "// Package e2e tests.\npackage e2e_test"},
		},
		"a sentence that is matched is refused": {
			folder: "pkg/plugin/inspect", files: body("inspect", `import "strings"
func f(event struct{ Message string }) bool { return strings.Contains(event.Message, "failed") }`),
			want: []string{"looks for something in an event's message; read its reason, or the annotation of its cause"},
		},
		"so is one that a regular expression is found in": {
			folder: "pkg/plugin/inspect", files: body("inspect", `import "regexp"
var id = regexp.MustCompile("fs-[0-9]+")
func f(event struct{ Message string }) string { return id.FindString(event.Message) }`),
			want: []string{"looks for something in an event's message; read its reason, or the annotation of its cause"},
		},
		"the kubelet's sentences may be matched": {
			folder: "pkg/mountjobs", files: body("mountjobs", `import "strings"
func f(event struct{ Message string }) bool { return strings.Contains(event.Message, "failed") }`),
		},
		"init is refused": {
			folder: "pkg/queue", files: body("queue", "func init() {}"),
			want: []string{"init function; cmd calls constructors instead"},
		},
		"a method named init is not": {
			folder: "pkg/queue", files: body("queue", "type t int\nfunc (t) init() {}"),
		},
		"a test that sleeps is refused": {
			folder: "pkg/queue",
			files: map[string]string{
				"queue.go":      "// Package queue works.\npackage queue",
				"queue_test.go": "package queue\nimport clock \"time\"\nvar _ = clock.Sleep",
			},
			want: []string{"queue_test.go:3: test sleeps; use testing/synctest, or wait for the event"},
		},
		"a program may sleep": {
			folder: "pkg/queue", files: body("queue", `import "time"; var _ = time.Sleep`),
		},
		"comments that define a name by a clause are refused": {
			folder: "pkg/queue",
			files: map[string]string{
				"queue.go": "// Package queue is what works.\npackage queue\n" +
					"// Run says whether keys are left.\nfunc Run() {}\n" +
					"// Keys are those of objects.\ntype Keys []string\n" +
					"const (\n\t// most is how many keys are kept.\n\tmost = 1\n)\n",
				"queue_test.go": "package queue\n// names are\n// those of tests.\nvar names []string\n// fake is who syncs.\nvar fake int\n",
			},
			want: []string{
				`queue.go:3: comment starts "Run says whether"; write the name, a verb and the object`,
				`queue.go:5: comment starts "Keys are those"; write the name, a verb and the object`,
				`queue.go:8: comment starts "most is how"; write the name, a verb and the object`,
				`queue_test.go:5: comment starts "fake is who"; write the name, a verb and the object`,
			},
		},
		"comments with a verb, or with a noun for a type, are not": {
			folder: "pkg/queue",
			files: body("queue", "// Run reports whether keys are left.\nfunc Run() {}\n"+
				"// Key is the name of an object.\ntype Key string\n"+
				"// fields are not declarations.\ntype t struct {\n\t// a is what it is.\n\ta int\n}\n"+
				"func f() {\n\t// x is what it is.\n\tvar x int\n\t_ = x\n}\n"),
		},
		"file names without a noun are refused": {
			folder: "pkg/queue",
			files: map[string]string{
				"util.go":         "// Package queue works.\npackage queue",
				"helpers_test.go": "package queue",
				"utility.go":      "package queue",
			},
			want: []string{
				"helpers_test.go:1: file named for nothing; name its noun",
				"util.go:1: file named for nothing; name its noun",
			},
		},
		"long files are refused": {
			folder: "pkg/queue", files: body("queue", strings.Repeat("\n", layout.MaxLines)),
			want: []string{"402 lines, more than 400"},
		},
		"long generated files are not": {
			folder: "pkg/queue",
			files: text("// Code generated by hand. DO NOT EDIT.\n\n// Package queue works.\npackage queue" +
				strings.Repeat("\n", layout.MaxLines)),
		},
		"pure packages import no cluster, cloud, log, process or network": {
			folder: "pkg/stunnelcfg",
			files: body("stunnelcfg", imports("k8s.io/client-go/kubernetes", "github.com/aws/smithy-go",
				"log/slog", "net", "net/http", "net/netip", "os", "os/exec", "k8s.io/api/core/v1", "fmt")),
			want: []string{
				"pure package imports k8s.io/client-go/kubernetes",
				"pure package imports github.com/aws/smithy-go",
				"pure package imports log/slog",
				"pure package imports net",
				"pure package imports net/http",
				"pure package imports os",
				"pure package imports os/exec",
			},
		},
		"their tests may": {
			folder: "pkg/stunnelcfg",
			files: map[string]string{
				"config.go":      "// Package stunnelcfg renders.\npackage stunnelcfg",
				"config_test.go": "package stunnelcfg\n" + imports("os"),
			},
		},
		"pure packages import pure packages only": {
			folder: "pkg/efs/efstest",
			files: body("efstest", imports(layout.Module+"/pkg/manager/claims", layout.Module+"/pkg/queue",
				layout.Module+"/pkg/efs/awsefs", layout.Module+"/pkg/efs")),
			want: []string{
				"pure package imports " + layout.Module + "/pkg/manager/claims",
				"pure package imports " + layout.Module + "/pkg/queue",
				"imports " + layout.Module + "/pkg/manager/claims",
				"imports " + layout.Module + "/pkg/queue",
				"pure package imports " + layout.Module + "/pkg/efs/awsefs",
			},
		},
		"the EFS client's package is not pure": {
			folder: "pkg/efs/awsefs", files: body("awsefs", imports(awsEFS, "net/http")),
		},
		"the EFS client has one package": {
			folder: "pkg/manager/table", files: body("table", imports(awsEFS+"/types")),
			want: []string{"imports " + awsEFS + "/types"},
		},
		"pure packages read no clock and start nothing": {
			folder: "pkg/ports",
			files:  body("ports", "import \"time\"\nvar _ = time.Now\nfunc f() {\n\tgo f()\n}"),
			want: []string{
				"file.go:4: pure package uses time.Now; take the time as an argument",
				"file.go:6: pure package starts a goroutine",
			},
		},
		"loops do not import each other": {
			folder: "pkg/manager/claims",
			files: map[string]string{
				"claims.go": "// Package claims provisions.\npackage claims\n" +
					imports(layout.Module+"/pkg/manager/jobs", layout.Module+"/pkg/manager/claims/plan"),
				"claims_test.go": "package claims\n" + imports(layout.Module+"/pkg/manager/table"),
			},
			want: []string{
				"claims.go:3: imports " + layout.Module + "/pkg/manager/jobs",
				"claims_test.go:2: imports " + layout.Module + "/pkg/manager/table",
			},
		},
		"nothing imports cmd": {
			folder: "test/integration", files: body("integration", imports(layout.Module+"/cmd/manager")),
			want: []string{"imports " + layout.Module + "/cmd/manager"},
		},
		"programs do not import each other's rooms, but what is below": {
			folder: "pkg/plugin/inspect",
			files: body("inspect", imports(layout.Module+"/pkg/node/probe", layout.Module+"/pkg/plugin/collect",
				layout.Module+"/pkg/kube/events", layout.Module+"/pkg/volumes", layout.Module+"/pkg/api/status")),
			want: []string{"imports " + layout.Module + "/pkg/node/probe"},
		},
		"machinery does not import what uses it": {
			folder: "pkg/kube/events", files: body("events", imports(layout.Module+"/pkg/manager/claims", layout.Module+"/pkg/queue")),
			want: []string{"imports " + layout.Module + "/pkg/manager/claims"},
		},
		"the manager does not import the engine": {
			folder: "pkg/manager/jobs",
			files: body("jobs", imports(layout.Module+"/pkg/worker", layout.Module+"/pkg/worker/batch",
				layout.Module+"/pkg/mountjobs", layout.Module+"/pkg/api/operations")),
			want: []string{
				"imports " + layout.Module + "/pkg/worker",
				"imports " + layout.Module + "/pkg/worker/batch",
				"imports " + layout.Module + "/pkg/worker; only cmd/mountjob links the engine",
				"imports " + layout.Module + "/pkg/worker/batch; only cmd/mountjob links the engine",
			},
		},
		"its tests may": {
			folder: "pkg/manager/jobs",
			files: map[string]string{
				"jobs.go":      "// Package jobs runs.\npackage jobs",
				"jobs_test.go": "package jobs\n" + imports(layout.Module+"/pkg/worker"),
			},
		},
		"mountjob imports the engine": {
			folder: "cmd/mountjob",
			files:  text("// Command mountjob works.\npackage main\n" + imports(layout.Module+"/pkg/worker")),
		},
		"mountjob links nothing of third parties": {
			folder: "cmd/mountjob", files: text("// Command mountjob works.\npackage main"),
			deps: []string{"fmt", "os", layout.Module + "/pkg/api/wellknown", "k8s.io/api/core/v1", "golang.org/x/sys/unix", "golang.org/x/sync/errgroup", "golang.org/x/time/rate"},
			want: []string{"cmd/mountjob: links k8s.io/api/core/v1"},
		},
		"the packages that it is made of do neither": {
			folder: "pkg/worker/batch", files: body("batch", imports("os")),
			deps: []string{"os", "github.com/hashicorp/go-multierror"},
			want: []string{"pkg/worker/batch: links github.com/hashicorp/go-multierror"},
		},
		"the manager links Kubernetes": {
			folder: "cmd/manager", files: text("// Command manager manages.\npackage main"),
			deps: []string{"k8s.io/api/core/v1"},
		},
	}
	var loops []layout.Package
	for _, loop := range []string{"claims", "jobs", "table"} {
		loops = append(loops, layout.Package{
			ImportPath: layout.Module + "/pkg/manager/" + loop, Files: []*layout.File{parse(t, "controller.go", []byte("package "+loop))},
		})
	}
	rules := append(layout.SourceRules(), layout.DirectionRules(loops)...)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := layout.Package{ImportPath: path.Join(layout.Module, tt.folder), Deps: tt.deps}
			for _, name := range slices.Sorted(maps.Keys(tt.files)) {
				p.Files = append(p.Files, parse(t, name, []byte(tt.files[name])))
			}
			expectFindings(t, layout.Check([]layout.Package{p}, rules), tt.want)
		})
	}
}

// expectFindings compares in any order: findings are sorted by position, expectations are not.
func expectFindings(t *testing.T, got, want []string) {
	t.Helper()
	missing := slices.Clone(want)
	for _, finding := range got {
		known := false
		for i, ending := range missing {
			if strings.HasSuffix(finding, ending) {
				missing = slices.Delete(missing, i, i+1)
				known = true
				break
			}
		}
		if !known {
			t.Errorf("unexpected finding: %s", finding)
		}
	}
	for _, ending := range missing {
		t.Errorf("not found: %s", ending)
	}
}

func text(source string) map[string]string { return map[string]string{"file.go": source} }

func body(name, source string) map[string]string {
	return text(fmt.Sprintf("// Package %s is.\npackage %s\n%s", name, name, source))
}

// imports are on one line, so that all of a file's findings have the same position.
func imports(paths ...string) string {
	var specs []string
	for _, p := range paths {
		specs = append(specs, fmt.Sprintf("_ %q", p))
	}
	return "import (" + strings.Join(specs, "; ") + ")"
}

func parse(t *testing.T, name string, source []byte) *layout.File {
	t.Helper()
	file, err := layout.ParseFile(name, source)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSizesAreBounded(t *testing.T) {
	room := func(folder string, lines int, test bool) layout.Package {
		name := "file.go"
		if test {
			name = "file_test.go"
		}
		file, err := layout.ParseFile(name, []byte("package p"+strings.Repeat("\n", lines)))
		if err != nil {
			t.Fatal(err)
		}
		return layout.Package{ImportPath: path.Join(layout.Module, folder), Files: []*layout.File{file}}
	}
	several := func(n, lines int, folder string) (all []layout.Package) {
		for i := range n {
			all = append(all, room(fmt.Sprint(folder, i), lines, false))
		}
		return all
	}
	for name, c := range map[string]struct {
		pkgs []layout.Package
		want string
	}{
		"a room":                  {[]layout.Package{room("pkg/a", layout.MaxRoomLines, false)}, ""},
		"a room that is too long": {[]layout.Package{room("cmd/a", layout.MaxRoomLines+1, false)}, "cmd/a: 3001 lines without tests, more than 3000"},
		"tests do not count":      {[]layout.Package{room("pkg/a", layout.MaxRoomLines+1, true)}, ""},
		"nor do tools":            {[]layout.Package{room("hack/a", layout.MaxRoomLines+1, false)}, ""},
		"the house":               {several(layout.MaxHouseLines/100, 100, "pkg/a/"), ""},
		"a house that is too big": {append(several(layout.MaxHouseLines/100, 100, "pkg/a/"), room("cmd/a", layout.MaxHouseLines%100+1, false)), "pkg and cmd: 55301 lines without tests, more than 55300"},
		"folders":                 {several(layout.MaxFolders, 1, "pkg/a"), ""},
		"too many folders":        {several(layout.MaxFolders+1, 1, "pkg/a"), "pkg: 15 folders, more than 14"},
	} {
		if got := strings.Join(layout.CheckSize(c.pkgs), "; "); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
