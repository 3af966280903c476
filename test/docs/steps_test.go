package docs

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shellBlocks returns the commands of a page.
func (p page) shellBlocks() []string {
	var all []string
	_, blocks := p.split()
	for _, b := range blocks {
		if b.language == "sh" {
			all = append(all, b.text)
		}
	}
	return all
}

// TestStepsOfTheReadmeAreThoseOfThePage: the README has the steps for EKS without the explanations, and as many.
func TestStepsOfTheReadmeAreThoseOfThePage(t *testing.T) {
	const wantSteps = 6
	page := readPage(t, "docs/start/eks.md")
	section := stepsOfTheReadme(t)
	if got := len(regexp.MustCompile(`(?m)^# \d\. `).FindAllString(section, -1)); got != wantSteps {
		t.Errorf("the README has %d steps, want %d", got, wantSteps)
	}
	if got := len(regexp.MustCompile(`(?m)^\*\*\d\. `).FindAllString(page.text, -1)); got != wantSteps {
		t.Errorf("%s has %d steps, want %d", page.path, got, wantSteps)
	}
	commands := strings.Split(strings.Join(page.shellBlocks(), ""), "\n")
	found := 0
	for line := range strings.Lines(strings.Join(pageOf(section).shellBlocks(), "")) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		found++
		if !slices.Contains(commands, line) {
			t.Errorf("%s lacks the README's command %s", page.path, line)
		}
	}
	if found < 10 {
		t.Errorf("found only %d commands", found)
	}
}

// stepsOfTheReadme is not a section as page has them: comments of the shell look like headings.
func stepsOfTheReadme(t *testing.T) string {
	t.Helper()
	_, rest, _ := strings.Cut(readPage(t, "README.md").text, "\n## Install on EKS\n")
	steps, _, ok := strings.Cut(rest, "\n## ")
	if !ok {
		t.Fatal("README.md has no section with the steps for EKS")
	}
	return steps
}

// TestStepsCreateARepositoryForEachImage that make images pushes: ECR refuses the others, which ends it.
func TestStepsCreateARepositoryForEachImage(t *testing.T) {
	const list = `for image in ([a-z -]+); do`
	push := regexp.MustCompile(`(?m)^` + list + `$`).FindStringSubmatch(readPage(t, "hack/images/push").text)
	if push == nil {
		t.Fatal("hack/images/push has no list of images")
	}
	for _, path := range []string{"README.md", "docs/start/eks.md", "docs/contribute/real-efs.md"} {
		created := regexp.MustCompile(list + ` aws ecr create-repository `).FindStringSubmatch(readPage(t, path).text)
		if created == nil || created[1] != push[1] {
			t.Errorf("%s creates the repositories %q, and make images pushes %q", path, created, push[1])
		}
	}
}

func pageOf(text string) page { return page{text: text} }

// TestPolicyOfTheStepsIsThatOfThePermissions holds the policy that users copy to the one that is compared with the code.
func TestPolicyOfTheStepsIsThatOfThePermissions(t *testing.T) {
	for _, path := range []string{"README.md", "docs/start/eks.md"} {
		_, rest, _ := strings.Cut(readPage(t, path).text, "cat > policy.json <<'EOF'\n")
		text, _, ok := strings.Cut(rest, "\nEOF\n")
		var policy struct{ Statement []struct{ Action []string } }
		if err := json.Unmarshal([]byte(text), &policy); !ok || err != nil || len(policy.Statement) != 1 {
			t.Fatalf("%s: the policy is %q, %v", path, text, err)
		}
		got := slices.Sorted(slices.Values(policy.Statement[0].Action))
		if diff := cmp.Diff(allowed(t)[0], got); diff != "" {
			t.Errorf("%s: actions mismatch (-permissions +steps):\n%s", path, diff)
		}
	}
}

// TestStepsCanBePasted into shells that know no comments when they are interactive, as zsh does not.
func TestStepsCanBePasted(t *testing.T) {
	risky := regexp.MustCompile("[^ ] +# |^# .*['\"`;&|()<>$]")
	for _, p := range []page{pageOf(stepsOfTheReadme(t)), readPage(t, "docs/start/eks.md")} {
		for line := range strings.Lines(strings.Join(p.shellBlocks(), "")) {
			if risky.MatchString(line) {
				t.Errorf("a comment behind a command, or with characters of the shell: %s", line)
			}
		}
	}
}

// TestCommandsWorkInZsh, the shell of macOS: $name:e and the like change the value, a variable is one word, also with
// spaces, and who reads into path has no PATH.
func TestCommandsWorkInZsh(t *testing.T) {
	risky := regexp.MustCompile(`\$[A-Za-z_]+:[A-Za-z&]|\bread [^|;]*\bpath\b|(^|[ ;])(path|status|argv)=|\bfor \w+ in \$[A-Za-z_]`)
	for _, p := range pages(t) {
		for line := range strings.Lines(strings.Join(p.shellBlocks(), "")) {
			if risky.MatchString(line) {
				t.Errorf("%s: %s", p.path, line)
			}
		}
	}
}

// TestCommandsAreShell has bash read every block of commands, without running it.
func TestCommandsAreShell(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	found := 0
	for _, p := range pages(t) {
		for _, text := range p.shellBlocks() {
			found++
			command := exec.CommandContext(t.Context(), bash, "-n")
			command.Stdin = strings.NewReader(text)
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", p.path, err, out, text)
			}
		}
	}
	if found < 20 {
		t.Errorf("found only %d blocks of commands", found)
	}
}
