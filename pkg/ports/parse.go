package ports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Limits of unknown keys in the table, so that it can always be written again.
const (
	maxDepth    = 32
	maxKeyBytes = 512
)

// value is a part of the file.
type value struct {
	path string // for error messages
	json any    // nil when it is missing or null
}

// parse reads YAML as the original system's library does, where "yes" is a boolean. A key that
// occurs twice is an error: one of two ports would be lost.
func parse(text []byte) (value, error) {
	encoded, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return value{}, fmt.Errorf("parsing YAML: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber() // keeps all digits of large numbers under unknown keys
	var content value
	if err := decoder.Decode(&content.json); err != nil {
		return value{}, fmt.Errorf("parsing YAML as JSON: %w", err)
	}
	switch content.json.(type) {
	case map[string]any:
		return content, nil
	case nil:
		return value{}, errors.New("the file is empty; want a mapping with " + keyTargets)
	}
	return value{}, fmt.Errorf("%s; want a mapping with %s", content, keyTargets)
}

// severalDocuments finds the markers between YAML documents, of which the library reads only the first.
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
				return fmt.Errorf("%s: key %.60q is too long; want at most %d bytes", path, key, maxKeyBytes)
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

// take removes a known key from a mapping and returns its value.
func (v value) take(key string) value {
	fields, _ := v.json.(map[string]any)
	taken := value{path: join(v.path, key), json: fields[key]}
	delete(fields, key)
	return taken
}

// rest returns the unknown keys of a mapping, which are those not taken.
func (v value) rest() map[string]any {
	if fields, ok := v.json.(map[string]any); ok && len(fields) > 0 {
		return fields
	}
	return nil
}

// each decodes the values of an optional mapping in the order of their keys, and returns those that
// are valid.
func each[T any](d *decoder, v value, check func(key string) error, decode func(d *decoder, key string, v value) T) map[string]T {
	fields, ok := v.json.(map[string]any)
	if !ok {
		if v.json != nil {
			d.want(v, "a mapping")
		}
		return nil
	}
	valid := map[string]T{}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		one := newDecoder(d.portsRequired)
		if err := check(key); err != nil {
			one.fail(fmt.Errorf("%s: %w", v.path, err))
		}
		decoded := decode(one, key, value{path: join(v.path, key), json: fields[key]})
		if one.err == nil {
			valid[key] = decoded
			continue
		}
		d.fail(one.err)
		d.invalid[key] = one.err
	}
	return valid
}

// String is for error messages, and short whatever the file contains.
func (v value) String() string {
	if v.json == nil {
		return "missing"
	}
	encoded, err := json.Marshal(v.json)
	if err != nil {
		return "?"
	}
	return fmt.Sprintf("%.60s", encoded)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
