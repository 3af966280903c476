package staticvolumes

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"gnuthought.com/efs-stunnel/pkg/requests"
)

// ParsePair reads NAMESPACE/CLAIM=/path. Without a namespace the claim is of the default one.
func ParsePair(text, namespace string) (Wanted, error) {
	name, path, ok := strings.Cut(text, "=")
	w := Wanted{Namespace: namespace, Claim: name, Path: path}
	if before, after, both := strings.Cut(name, "/"); both {
		w.Namespace, w.Claim = before, after
	}
	if !ok || w.Namespace == "" || w.Claim == "" || !strings.HasPrefix(path, "/") {
		return Wanted{}, fmt.Errorf("%q: want NAMESPACE/CLAIM=/path", text)
	}
	if len(path) > 1 {
		w.Path = strings.TrimSuffix(path, "/")
	}
	return w, nil
}

// ParseList reads a pair from each line. Empty lines, and those that begin with #, are left out.
func ParseList(text, namespace string) ([]Wanted, error) {
	var wanted []Wanted
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		w, err := ParsePair(line, namespace)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		wanted = append(wanted, w)
	}
	return wanted, nil
}

// The names in a template.
const (
	namespaceName = "{namespace}"
	claimName     = "{claim}"
)

// Template is a path with names of namespace and claim, and * and ? for any characters of a component:
// /{namespace}/{claim}, or /{namespace}-{claim}-pvc-*. Without a claim's name, the claim has the name of the
// directory.
type Template struct{ text string }

// ParseTemplate checks a template.
func ParseTemplate(text string) (Template, error) {
	t := Template{strings.TrimSuffix(text, "/")}
	if !utf8.ValidString(text) {
		return t, fmt.Errorf("the pattern %q is not valid UTF-8", text)
	}
	for _, name := range []string{namespaceName, claimName} {
		if strings.Count(t.text, name) > 1 {
			return t, fmt.Errorf("the pattern %q has %s twice", text, name)
		}
	}
	if rest := strings.NewReplacer(namespaceName, "", claimName, "").Replace(t.text); strings.ContainsAny(rest, `[]{}\`) {
		return t, fmt.Errorf("the pattern %q: want names, *, ?, %s and %s", text, namespaceName, claimName)
	}
	return t, requests.CheckPattern(t.Pattern())
}

// Pattern is that of requests.Directories.
func (t Template) Pattern() string {
	return strings.NewReplacer(namespaceName, "*", claimName, "*").Replace(t.text)
}

// HasNamespace reports whether paths say which namespace they are of.
func (t Template) HasNamespace() bool { return strings.Contains(t.text, namespaceName) }

// NameAll reads namespace and claim from the paths of directories. A directory of which a volume of another
// provisioner is known is that volume's claim's, whatever it is called.
func (t Template) NameAll(found []requests.Directory, known map[string]Wanted, namespaces []string) []Wanted {
	expressions := make([]*regexp.Regexp, len(namespaces))
	for i, namespace := range namespaces {
		expressions[i] = t.expression(namespace)
	}
	var wanted []Wanted
	for _, d := range found {
		w, ok := known[d.Path]
		if !ok {
			w = t.name(d.Path, namespaces, expressions)
		}
		wanted = append(wanted, w)
	}
	return wanted
}

// name is of none of the namespaces if the path fits several.
func (t Template) name(path string, namespaces []string, expressions []*regexp.Regexp) Wanted {
	w := Wanted{Path: path}
	var fits []string
	for i, namespace := range namespaces {
		if t.HasNamespace() && !strings.Contains(path, namespace) {
			continue // which is faster than the expression
		}
		found := expressions[i].FindStringSubmatch(path)
		if found == nil {
			continue
		}
		w.Namespace, w.Claim = namespace, path[strings.LastIndexByte(path, '/')+1:]
		if len(found) > 1 {
			w.Claim = found[1]
		}
		fits = append(fits, w.Namespace+"/"+w.Claim)
	}
	switch {
	case len(fits) == 0:
		w.Problem = "no namespace of the cluster, and no claim of it, has this name"
	case len(fits) > 1:
		w.Namespace, w.Claim = "", ""
		w.Problem = "it may be of any of these claims: " + strings.Join(fits, ", ") + ": say which by NAMESPACE/CLAIM=" + path
	}
	return w
}

// expression matches the paths of a namespace, with the claim's name as its group.
func (t Template) expression(namespace string) *regexp.Regexp {
	text := "^"
	for rest := t.text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, namespaceName):
			text, rest = text+regexp.QuoteMeta(namespace), rest[len(namespaceName):]
		case strings.HasPrefix(rest, claimName):
			text, rest = text+"([a-z0-9][-a-z0-9.]*)", rest[len(claimName):]
		case rest[0] == '*':
			text, rest = text+"[^/]*", rest[1:]
		case rest[0] == '?':
			text, rest = text+"[^/]", rest[1:]
		default:
			_, size := utf8.DecodeRuneInString(rest)
			text, rest = text+regexp.QuoteMeta(rest[:size]), rest[size:]
		}
	}
	return regexp.MustCompile(text + "$")
}

// NamespaceNames are those of the cluster.
func (c Cluster) NamespaceNames() []string { return slices.Sorted(maps.Keys(c.Namespaces)) }
