package layout_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// makeOf is a make whose targets end as the environment says: FAILS leaves results and exits with an error, and KILLED
// kills the shell that runs it.
const makeOf = `#!/bin/bash
case " $* " in
*" $FAILS "*) touch "bin/test/$FAILS.json"; exit 2 ;;
*" $KILLED "*) kill -KILL $PPID ;;
esac
`

// testsum prints a test that failed when it reads results, and nothing of slow tests.
const testsum = `#!/bin/bash
case "$*" in *" cat "*) echo "=== FAIL: TestX" ;; esac
`

// TestMakeTestFailsWithEachOfItsParts: CI believes what hack/test exits with.
func TestMakeTestFailsWithEachOfItsParts(t *testing.T) {
	for _, program := range []string{"bash", "cat", "cut", "dirname", "grep", "mkdir", "rm", "sed", "touch"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the script needs %s", program) // there may be nothing but Go, see CONTRIBUTING.md
		}
	}
	script, err := os.ReadFile(filepath.Join(root, "hack", "test"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ env, failed string }{
		{"FAILS=none", ""},
		{"FAILS=race", "race"},
		{"FAILS=integration", "integration"},
		{"FAILS=e2e", "e2e"},
		{"KILLED=race", "race"},
	} {
		t.Run(tt.env, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"hack/test": string(script), "path/make": makeOf, "bin/lab": "#!/bin/sh\n", "bin/gotestsum": testsum,
			} {
				file := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "hack", "test"))
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "path")+":"+os.Getenv("PATH"), "FAILS=none", "KILLED=none", tt.env)
			out, err := cmd.Output()
			if (err != nil) != (tt.failed != "") {
				t.Errorf("got %v", err)
			}
			for line := range strings.Lines(string(out)) {
				name, _, _ := strings.Cut(line, " ")
				if isFailed := strings.Contains(line, "FAILED"); isFailed != (tt.failed != "" && name == tt.failed) {
					t.Errorf("got %q", line)
				}
			}
			if named := strings.HasSuffix(string(out), "=== FAIL: TestX\n"); named != (tt.failed != "" && !strings.HasPrefix(tt.env, "KILLED")) {
				t.Errorf("ends without what failed:\n%s", out)
			}
			if tt.failed != "" && !strings.Contains(string(out), tt.failed+" ") {
				t.Errorf("no line of %s:\n%s", tt.failed, out)
			}
		})
	}
}
