package ports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Limits of what others may put into the table, so that it can always be written again.
const (
	maxDepth    = 32
	maxKeyBytes = 512
)

// value is a part of the file, and where it is.
type value struct {
	path string
	json any // nil when it is missing or null
}

// fields is a mapping of the file whose known keys are taken one by one.
type fields struct {
	path string
	all  map[string]any
	seen map[string]bool
}

// parse reads YAML, where a key that stands twice is an error: one of two ports would be lost.
func parse(text []byte) (fields, error) {
	if severalDocuments(text) {
		return fields{}, errors.New("more than one YAML document; want one")
	}
	encoded, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return fields{}, fmt.Errorf("parsing YAML: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber() // large numbers of others keep their digits
	var content any
	if err := decoder.Decode(&content); err != nil {
		return fields{}, fmt.Errorf("parsing YAML as JSON: %w", err)
	}
	if err := checkShape(content, "", 0); err != nil {
		return fields{}, err
	}
	if content == nil {
		return fields{}, errors.New("the file is empty; want a mapping with " + keyTargets)
	}
	all, ok := content.(map[string]any)
	if !ok {
		return fields{}, fmt.Errorf("%s; want a mapping with %s", value{json: content}, keyTargets)
	}
	return fields{all: all, seen: map[string]bool{}}, nil
}

// severalDocuments finds the markers between YAML documents, of which the library reads the
// first and forgets the others.
func severalDocuments(text []byte) bool {
	content := false
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		marker := word == "---" || word == "..."
		if marker && content {
			return true
		}
		if marker {
			word = strings.TrimSpace(rest)
		}
		content = content || word != "" && word[0] != '#' && word[0] != '%'
	}
	return false
}

// checkShape refuses what could be read and not be written again.
func checkShape(content any, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: nested too deeply; want at most %d levels", path, maxDepth)
	}
	switch v := content.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if len(key) > maxKeyBytes {
				return fmt.Errorf("%s: key %s is too long; want at most %d bytes", path, excerpt(key), maxKeyBytes)
			}
			if err := checkShape(v[key], join(path, key), depth+1); err != nil {
				return err
			}
		}
	case []any:
		for i, item := range v {
			if err := checkShape(item, fmt.Sprintf("%s[%d]", path, i), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// take returns a known key's value, which then is no longer among the rest.
func (f fields) take(key string) value {
	f.seen[key] = true
	return value{path: join(f.path, key), json: f.all[key]}
}

// rest are the keys that nobody took.
func (f fields) rest() map[string]any {
	var rest map[string]any
	for key, v := range f.all {
		if f.seen[key] {
			continue
		}
		if rest == nil {
			rest = map[string]any{}
		}
		rest[key] = v
	}
	return rest
}

// fields reads a value that must be a mapping, or in the pinned table nothing.
func (r *reader) fields(v value) fields {
	all, ok := v.json.(map[string]any)
	if !ok && (v.json != nil || r.portsRequired) {
		r.want(v, "a mapping")
	}
	return fields{path: v.path, all: all, seen: map[string]bool{}}
}

// each reads the values of a mapping in the order of their keys.
func (r *reader) each(v value, check func(key string) error, read func(key string, v value)) {
	all, ok := v.json.(map[string]any)
	if !ok {
		r.want(v, "a mapping")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if err := check(key); err != nil {
			r.fail(fmt.Errorf("%s: %w", v.path, err))
			continue
		}
		read(key, v.at(join(v.path, key), all[key]))
	}
}

func (value) at(path string, json any) value { return value{path: path, json: json} }

func (v value) integer() (number int, ok bool) {
	text, ok := v.json.(json.Number)
	if !ok {
		return 0, false
	}
	number, err := strconv.Atoi(text.String())
	return number, err == nil
}

// String is for error messages.
func (v value) String() string {
	encoded, err := json.Marshal(v.json)
	if err != nil {
		return "?"
	}
	return shorten(string(encoded))
}

func excerpt(text string) string { return strconv.Quote(shorten(text)) }

// shorten keeps messages readable whatever somebody put into the file.
func shorten(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
