package docs

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestVersionsAreThoseOfPreflight holds the table of versions to what preflight says about a cluster, and the versions
// that were tested to the page of runs.
func TestVersionsAreThoseOfPreflight(t *testing.T) {
	source := readPage(t, "pkg/plugin/preflight/check.go").text
	m := regexp.MustCompile(`firstTested, lastTested, oldestVersion = "1\.(\d+)", "1\.(\d+)", "1\.(\d+)"`).FindStringSubmatch(source)
	if m == nil {
		t.Fatal("preflight names no versions")
	}
	first, last, oldest := number(t, m[1]), number(t, m[2]), number(t, m[3])
	want := map[string]string{}
	for minor := oldest - 1; minor <= last; minor++ {
		state := "expected"
		switch {
		case minor < oldest:
			state = "refused"
		case minor >= first:
			state = "tested"
		}
		want[fmt.Sprintf("1.%d", minor)] = state
	}
	got := map[string]string{}
	for _, row := range rows(readPage(t, "docs/reference/versions.md").section(t, "## Kubernetes")) {
		got[codes(row[0])[0]] = row[2]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions mismatch (-preflight +page):\n%s", diff)
	}
	runs := readPage(t, "docs/contribute/versions.md").section(t, "## Versions of Kubernetes")
	for version, state := range got {
		if named := regexp.MustCompile(regexp.QuoteMeta(version) + `\b`).MatchString(runs); named != (state == "tested") {
			t.Errorf("version %s is %s, and named among the runs: %v", version, state, named)
		}
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
