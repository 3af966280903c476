package collect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

const (
	removed        = "(removed)"
	removedAccount = "(account)"
)

type redactor struct{ accounts bool }

// secretName matches the names of variables, flags and fields that have credentials.
const secretName = `(?:pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|authorization|session|signature|cookie|bearer)`

var (
	secretVariable = regexp.MustCompile(`(?i)(?:pass|pwd|secret|token|credential|auth|session|signature|cookie|key(?:$|[_-]))|(?:api|access|private)[_-]?key`)

	// assignment is name=value, name: value or "name": "value", also with the quotes of JSON in JSON.
	assignment = regexp.MustCompile(`(?i)(` + secretName + `(?:[_.-][\w.-]*)?\\?["']?\s*[:=]\s*(?:(?:bearer|basic)\s+)?)` +
		`(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&"']+)`)
	// statement is "name" is "value", as messages have it.
	statement = regexp.MustCompile(`(?i)(` + secretName + `["']?\s+is\s+)"(?:[^"\\]|\\.)*"`)

	// credentials are recognizable by their form. Each is searched for only where its hint is.
	credentials = []struct {
		hints []string
		form  *regexp.Regexp
	}{
		{[]string{"PRIVATE KEY-----"}, regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`)},
		{[]string{"AKIA", "ASIA", "ABIA", "ACCA"}, regexp.MustCompile(`\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b`)},
		{[]string{"eyJ"}, regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?`)}, // a JSON web token
		{[]string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox"}, regexp.MustCompile(`\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-)[\w-]{16,}`)},
	}
	bearer    = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}`)
	userinfo  = regexp.MustCompile(`://[^/\s"'@]+@`)
	accountID = regexp.MustCompile(`(^|[^0-9A-Za-z-])[0-9]{12}\b`)
)

// names are parts of what secretName matches, and the schemes of bearer.
var names = []string{"pass", "secret", "token", "api", "access", "private", "credential", "auth", "session", "signature", "cookie", "bearer", "basic"}

// Redacted returns a text in which what looks like a credential is replaced.
func Redacted(text string) string { return redactor{}.text(text) }

func (r redactor) text(text string) string {
	for _, c := range credentials {
		if containsAny(text, c.hints) {
			text = c.form.ReplaceAllString(text, removed)
		}
	}
	var out strings.Builder
	for line := range strings.Lines(text) { // most lines of a log have nothing to look at
		out.WriteString(r.line(line))
	}
	return out.String()
}

func (r redactor) line(line string) string {
	if containsAny(strings.ToLower(line), names) {
		line = bearer.ReplaceAllString(line, "$1 "+removed)
		line = assignment.ReplaceAllString(line, "${1}"+removed)
		line = statement.ReplaceAllString(line, "${1}"+removed)
	}
	if strings.Contains(line, "://") {
		line = userinfo.ReplaceAllString(line, "://"+removed+"@")
	}
	line = secretKeys(line)
	if r.accounts {
		line = accountID.ReplaceAllString(line, "${1}"+removedAccount)
	}
	return line
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// secretKeys replaces words with the form of an AWS secret access key: 40 characters, of upper and lower
// case and digits. Paths and hexadecimal hashes do not have it.
func secretKeys(text string) string {
	for word := range strings.FieldsFuncSeq(text, isNoKeyCharacter) {
		if len(word) == 40 && isMixed(word) {
			text = strings.ReplaceAll(text, word, removed)
		}
	}
	return text
}

func isNoKeyCharacter(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '/' && c != '+'
}

func isMixed(word string) bool {
	return strings.ContainsAny(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") && strings.ContainsAny(word, "abcdefghijklmnopqrstuvwxyz") &&
		strings.ContainsAny(word, "0123456789") && strings.Count(word, "/") < 4
}

// variable returns the value of an environment variable or a flag.
func (r redactor) variable(name, value string) string {
	if value != "" && secretVariable.MatchString(name) {
		return removed
	}
	return r.text(value)
}

// object returns an API object as YAML, without credentials and without what no issue needs.
func (r redactor) object(object runtime.Object) (string, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return "", err
	}
	if kinds, _, err := scheme.Scheme.ObjectKinds(object); err == nil && len(kinds) > 0 { // typed clients leave it out
		fields["apiVersion"], fields["kind"] = kinds[0].GroupVersion().String(), kinds[0].Kind
	}
	text, err := yaml.Marshal(r.value("", fields))
	if err != nil {
		return "", fmt.Errorf("writing an object: %w", err)
	}
	return string(text), nil
}

func (r redactor) value(field string, value any) any {
	switch value := value.(type) {
	case string:
		return r.text(value)
	case []any:
		return r.list(field, value)
	case map[string]any:
		return r.fields(field, value)
	}
	return value
}

// namedFields are maps whose keys are chosen by users, as the names of variables are.
var namedFields = []string{"annotations", "labels", "matchLabels", "data", "parameters"}

func (r redactor) fields(field string, fields map[string]any) map[string]any {
	if field == "metadata" { // also of templates, with annotations of their own
		clearMeta(fields)
	}
	for key, value := range fields {
		if text, ok := value.(string); ok && slices.Contains(namedFields, field) {
			fields[key] = r.variable(key, text)
			continue
		}
		fields[key] = r.value(key, value)
	}
	return fields
}

// list redacts variables and arguments by their names, too.
func (r redactor) list(field string, list []any) []any {
	for i, item := range list {
		variable, _ := item.(map[string]any)
		name, _ := variable["name"].(string)
		if value, ok := variable["value"].(string); ok {
			variable["value"] = r.variable(name, value)
		}
		list[i] = r.value(field, item)
	}
	if field == "args" || field == "command" {
		r.arguments(list)
	}
	return list
}

// arguments redacts the value of a flag that is an argument of its own.
func (r redactor) arguments(list []any) {
	for i := 1; i < len(list); i++ {
		flag, _ := list[i-1].(string)
		value, _ := list[i].(string)
		if strings.HasPrefix(flag, "-") && !strings.Contains(flag, "=") && !strings.HasPrefix(value, "-") {
			list[i] = r.variable(flag, value)
		}
	}
}

// clearMeta keeps the annotations of this project and of Kubernetes. Other programs store anything in
// theirs, and kubectl a copy of the whole object.
func clearMeta(meta map[string]any) {
	delete(meta, "managedFields")
	all, ok := meta["annotations"].(map[string]any)
	if !ok {
		return
	}
	for key := range all {
		domain, _, _ := strings.Cut(key, "/")
		ours := isBelow(domain, wellknown.Domain) || isBelow(domain, wellknown.KubernetesDomain) || isBelow(domain, wellknown.KubernetesShortDomain)
		if key == corev1.LastAppliedConfigAnnotation || !ours {
			all[key] = removed
		}
	}
}

func isBelow(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// node returns the fields of a node that show its zone and whether it can mount.
func node(from *corev1.Node) *corev1.Node {
	to := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: from.Name, CreationTimestamp: from.CreationTimestamp, Labels: map[string]string{}}}
	for _, key := range []string{
		corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelInstanceTypeStable, "eks.amazonaws.com/compute-type",
	} {
		if value, ok := from.Labels[key]; ok {
			to.Labels[key] = value
		}
	}
	to.Spec = corev1.NodeSpec{Taints: from.Spec.Taints, Unschedulable: from.Spec.Unschedulable}
	to.Status = corev1.NodeStatus{Conditions: from.Status.Conditions, NodeInfo: from.Status.NodeInfo, Allocatable: from.Status.Allocatable}
	to.Status.NodeInfo.MachineID, to.Status.NodeInfo.SystemUUID, to.Status.NodeInfo.BootID = "", "", ""
	return to
}
