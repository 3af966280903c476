package volumes_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func TestPaths(t *testing.T) {
	label := func(key, value string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{key: value} }
	}
	tests := map[string]struct {
		base, pattern string // "" is the default
		claim         func(*corev1.PersistentVolumeClaim)
		want          string
	}{
		"the default is a directory of the claim's own": {"", "", nil, "/team/data-" + claimUID},
		"the default is the volume name, if there is":   {"", "", selecting(map[string]string{"volume_name": "x"}), "/team/x"},
		"paths are below the base path":                 {"/k8s/prod", "", selecting(map[string]string{"volume_name": "x"}), "/k8s/prod/team/x"},
		"every variable of the claim can be used":       {"", "${.PVC.namespace}.${.PVC.name}/${.PVC.uid}", nil, "/team.data/" + claimUID},
		"the volume's name can be used":                 {"", "volumes/${.PV.name}", nil, "/volumes/pvc-" + claimUID},
		"a label can be used":                           {"", "${.PVC.labels.app}", label("app", "web"), "/web"},
		"a label with a domain can be used":             {"", "${.PVC.labels.example.com/app}", label("example.com/app", "web"), "/web"},
		"an annotation can be a path":                   {"", "${.PVC.annotations.nfs.io/storage-path}", annotated("nfs.io/storage-path", "a/b c/d"), "/a/b c/d"},
		"an annotation can be a part of a component":    {"/b", "x-${.PVC.annotations.a}-y", annotated("a", "1/2"), "/b/x-1/2-y"},
		"an annotation's key may have capitals":         {"", "${.PVC.annotations.Example.com/A}", annotated("Example.com/A", "v"), "/v"},
		"a pattern may be one name for all claims":      {"", "shared", nil, "/shared"},
		"a name may have any other character":           {"", "ü: ${.PVC.name}%~", nil, "/ü: data%~"},
		"a long claim name is cut": {"", "", func(c *corev1.PersistentVolumeClaim) { c.Name = strings.Repeat("a", 253) },
			"/team/" + strings.Repeat("a", 200) + "-" + claimUID},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			claim := newClaim()
			if tt.claim != nil {
				tt.claim(claim)
			}
			if got := parseClaim(t, claim, patternClass(t, tt.base, tt.pattern)).Path; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func patternClass(t testing.TB, base, pattern string) volumes.Class {
	t.Helper()
	parameters := map[string]string{}
	if base != "" {
		parameters["base_path"] = base
	}
	if pattern != "" {
		parameters["path_pattern"] = pattern
	}
	return parseClass(t, newClass(parameters))
}

func TestPathsAreRefused(t *testing.T) {
	tests := map[string]struct {
		pattern, value string // of annotation or label a
		want           string
	}{
		"a label that is missing":                   {"x-${.PVC.labels.b}", "", `${.PVC.labels.b} is empty for this claim`},
		"an annotation that is missing":             {"x-${.PVC.annotations.b}", "", `${.PVC.annotations.b} is empty for this claim`},
		"a label that leads up":                     {"${.PVC.labels.a}", "..", `the path "/.." has the component ..`},
		"a label that is the directory itself":      {"${.PVC.labels.a}/x", ".", `the path "/./x" has the component .`},
		"labels that lead up together":              {"x/${.PVC.labels.a}${.PVC.labels.a}/y", ".", `the path "/x/../y" has the component ..`},
		"a label with a separator":                  {"${.PVC.labels.a}", "x/y", `${.PVC.labels.a} is "x/y" for this claim: it must be one component of a path`},
		"an annotation that leads up":               {"${.PVC.namespace}/${.PVC.annotations.a}", "../other", `the path "/team/../other" has the component ..`},
		"an annotation that leads up in the middle": {"${.PVC.annotations.a}", "x/../../y", `the path "/x/../../y" has the component ..`},
		"an absolute annotation":                    {"${.PVC.namespace}/${.PVC.annotations.a}", "/etc", `the path "/team//etc" has an empty component`},
		"an annotation that ends in a separator":    {"${.PVC.annotations.a}", "x/", `the path "/x/" has an empty component`},
		"an annotation with a backslash":            {"${.PVC.annotations.a}", `..\x`, `the path "/..\\x" has a backslash`},
		"an annotation with a NUL":                  {"${.PVC.annotations.a}", "x\x00", `the path "/x\x00" has a control character`},
		"an annotation with a line's end":           {"${.PVC.annotations.a}", "x\ny", `the path "/x\ny" has a control character`},
		"an annotation in the ledger":               {"${.PVC.annotations.a}", ".efs-stunnel/owners", `the path "/.efs-stunnel/owners" is in /.efs-stunnel, where no volume may be`},
		"an annotation that is the ledger":          {"${.PVC.annotations.a}", ".efs-stunnel", `the path "/.efs-stunnel" is in /.efs-stunnel, where no volume may be`},
		"an annotation that looks like an owner":    {"${.PVC.namespace}/${.PVC.annotations.a}", "@pvc-1", `the path "/team/@pvc-1" has a component that starts with @, which is reserved`},
		"an annotation that is too long":            {"${.PVC.annotations.a}", strings.Repeat("x", 256), `the path "/` + strings.Repeat("x", 255) + `" has a component of 256 bytes, more than 255`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			claim := newClaim(annotated("a", tt.value))
			claim.Labels = map[string]string{"a": tt.value}
			_, err := volumes.ParseClaim(claim, patternClass(t, "", tt.pattern))
			wantRefusal(t, err, `path_pattern `+quote(tt.pattern)+` of storage class "efs": `+tt.want)
		})
	}
}

func TestParsePatternRefuses(t *testing.T) {
	const allowed = "; allowed are ${.PVC.namespace}, ${.PVC.name}, ${.PVC.uid}, ${.PVC.labels.KEY}, ${.PVC.annotations.KEY}, ${.PV.name}, ${volume_name}"
	tests := map[string]struct{ pattern, want string }{
		"a variable that does not end":         {"a/${.PVC.name", `at position 3: "${" without "}"` + allowed},
		"a variable that there is not":         {"${.PVC.nam}", `at position 1: there is no variable ${.PVC.nam}` + allowed},
		"a variable of another driver":         {"ä/${pvc.metadata.name}", `at position 3: there is no variable ${pvc.metadata.name}` + allowed},
		"a variable in a variable":             {"${.PVC.labels.${.PVC.name}}", `at position 1: "${.PVC.name" is not the key of a label or annotation` + allowed},
		"a variable without a name":            {"${}", `at position 1: there is no variable ${}` + allowed},
		"a label without a key":                {"${.PVC.labels.}", `at position 1: "" is not the key of a label or annotation` + allowed},
		"a label with a key that cannot be":    {"${.PVC.labels.a b}", `at position 1: "a b" is not the key of a label or annotation` + allowed},
		"a dollar without a brace":             {"x-$volume_name", `at position 3: "$" outside of a variable` + allowed},
		"a brace without a dollar":             {"x/{.PVC.name}", `at position 3: "{" outside of a variable` + allowed},
		"a brace too many":                     {"${.PVC.name}}", `at position 13: "}" outside of a variable` + allowed},
		"an empty pattern":                     {"", "the path / is the whole file system"},
		"an absolute pattern":                  {"/${.PVC.name}", `the path "//x" has an empty component`},
		"a pattern that ends in a slash":       {"${.PVC.name}/", `the path "/x/" has an empty component`},
		"a pattern that leads up":              {"../${.PVC.name}", `the path "/../x" has the component ..`},
		"a pattern that leads into the ledger": {".efs-stunnel/${.PVC.name}", `the path "/.efs-stunnel/x" is in /.efs-stunnel, where no volume may be`},
		"a pattern that makes owners":          {"@${.PVC.name}", `the path "/@x" has a component that starts with @, which is reserved`},
		"a pattern with a backslash":           {`a\${.PVC.name}`, `the path "/a\\x" has a backslash`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := volumes.ParsePattern(tt.pattern)
			if err == nil || err.Error() != tt.want {
				t.Errorf("refused with\n%v\nnot\n%s", err, tt.want)
			}
			if _, err := volumes.ParseClass(newClass(map[string]string{"path_pattern": tt.pattern})); err == nil {
				t.Error("a class with that pattern is not refused")
			}
		})
	}
}
