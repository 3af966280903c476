package collect

import (
	"regexp"
	"slices"
	"strings"
)

const (
	removed        = "(removed)"
	removedAccount = "(account)"
)

// redactor replaces credentials in text.
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

// text replaces what looks like a credential, wherever it is.
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
	const length = 40
	var out strings.Builder
	begin := 0 // of the word
	for end := 0; end <= len(text); end++ {
		if end < len(text) && isKeyByte(text[end]) {
			continue
		}
		if word := text[begin:end]; len(word) == length && isMixed(word) {
			out.WriteString(removed)
		} else {
			out.WriteString(word)
		}
		if end < len(text) {
			out.WriteByte(text[end])
		}
		begin = end + 1
	}
	return out.String()
}

func isKeyByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '/' || c == '+'
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
