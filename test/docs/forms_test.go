package docs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// form is an issue form as GitHub, Gitea and Forgejo read it.
type form struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Title       string     `json:"title"`
	Labels      []string   `json:"labels"`
	Body        []question `json:"body"`
}

type question struct {
	Type       string `json:"type"`
	ID         string `json:"id"`
	Attributes struct {
		Label       string `json:"label"`
		Description string `json:"description"`
		Value       string `json:"value"`
		Render      string `json:"render"`
		Options     []struct {
			Label    string `json:"label"`
			Required bool   `json:"required"`
		} `json:"options"`
	} `json:"attributes"`
	Validations struct {
		Required bool `json:"required"`
	} `json:"validations"`
}

// TestIssueFormsCanBeRead: a site ignores a form with a mistake without a word.
func TestIssueFormsCanBeRead(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/ISSUE_TEMPLATE/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d forms, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f form
		if err := yaml.UnmarshalStrict(text, &f); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if f.Name == "" || f.Description == "" || len(f.Labels) == 0 {
			t.Errorf("%s has no name, description or label: %+v", file, f)
		}
		checkQuestions(t, file, f.Body)
	}
}

func checkQuestions(t *testing.T, file string, questions []question) {
	t.Helper()
	ids := map[string]bool{}
	for _, q := range questions {
		if q.Type == "markdown" {
			if q.Attributes.Value == "" {
				t.Errorf("%s has an empty text", file)
			}
			continue
		}
		if q.ID == "" || ids[q.ID] || q.Attributes.Label == "" || !slices.Contains([]string{"input", "textarea", "checkboxes"}, q.Type) {
			t.Errorf("%s: the question %+v has no id of its own, no label or an unknown type", file, q)
		}
		if (q.Type == "checkboxes") != (len(q.Attributes.Options) > 0) {
			t.Errorf("%s: %s has %d boxes", file, q.ID, len(q.Attributes.Options))
		}
		ids[q.ID] = true
	}
	if len(ids) == 0 {
		t.Errorf("%s asks nothing", file)
	}
}
