package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// writer writes a tree as YAML with the instructions of Helm's templates.
type writer struct{ text strings.Builder }

func (w *writer) line(indent int, format string, args ...any) {
	fmt.Fprintf(&w.text, "%s%s\n", strings.Repeat(" ", indent), fmt.Sprintf(format, args...))
}

// instruct writes an instruction, which leaves no line in the result.
func (w *writer) instruct(text string) { w.line(0, "{{- %s }}", text) }

func (w *writer) object(indent int, object map[string]any) error {
	for _, key := range keys(object) {
		value := object[key]
		if err := w.field(indent, scalar(key)+":", value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// keys returns the keys of an object, sorted, and those that a switch may remove last: the first key of an item of
// a list is on the line of the dash.
func keys(object map[string]any) []string {
	sorted := slices.Sorted(maps.Keys(object))
	slices.SortStableFunc(sorted, func(a, b string) int {
		_, first := object[a].(conditional)
		_, second := object[b].(conditional)
		switch {
		case first == second:
			return 0
		case second:
			return -1
		}
		return 1
	})
	return sorted
}

// field writes a value after its key, or neither.
func (w *writer) field(indent int, key string, value any) error {
	c, ok := value.(conditional)
	if !ok {
		return w.entry(indent, key, value)
	}
	w.instruct("if " + c.when)
	defer w.instruct("end")
	if list, isList := c.value.([]any); isList && len(list) > 0 { // it has an item whenever it is there
		w.line(indent, "%s", key)
		return w.list(indent, list)
	}
	return w.entry(indent, key, c.value)
}

// entry writes a value after its key.
func (w *writer) entry(indent int, key string, value any) error {
	switch v := value.(type) {
	case map[string]any:
		if len(v) > 0 {
			w.line(indent, "%s", key)
			return w.object(indent+2, v)
		}
	case []any:
		if len(v) > 0 && !optional(v) {
			w.line(indent, "%s", key)
			return w.list(indent, v)
		}
		if len(v) > 0 {
			return w.arguments(indent, key, v)
		}
	}
	text, err := leaf(value, indent+2)
	w.line(indent, "%s %s", key, text)
	return err
}

func (w *writer) list(indent int, items []any) error {
	for _, item := range items {
		if s, ok := item.(splice); ok {
			w.instruct("with " + string(s))
			w.line(0, "{{- toYaml . | nindent %d }}", indent)
			w.instruct("end")
			continue
		}
		c, ok := item.(conditional)
		if ok {
			w.instruct("if " + c.when)
			item = c.value
		}
		if err := w.item(indent, item); err != nil {
			return err
		}
		if ok {
			w.instruct("end")
		}
	}
	return nil
}

// item writes an item of a list. The first key of an object is on the line of the dash, so it must be one
// that no switch removes.
func (w *writer) item(indent int, item any) error {
	object, ok := item.(map[string]any)
	if !ok || len(object) == 0 {
		text, err := leaf(item, indent+2)
		w.line(indent, "- %s", text)
		return err
	}
	var inner writer
	if err := inner.object(indent+2, object); err != nil {
		return err
	}
	text := inner.text.String()
	prefix := strings.Repeat(" ", indent+2)
	if !strings.HasPrefix(text, prefix) {
		return fmt.Errorf("the first key of an item of a list is conditional: %s", text)
	}
	w.text.WriteString(strings.Repeat(" ", indent) + "- " + text[len(prefix):])
	return nil
}

// optional reports whether all items of a list are conditional, or values, so that the list may be empty.
func optional(items []any) bool {
	return !slices.ContainsFunc(items, func(item any) bool {
		switch item.(type) {
		case conditional, splice:
			return false
		}
		return true
	})
}

// arguments writes a list of strings that may be empty, on one line. A value or a switch may be null.
func (w *writer) arguments(indent int, key string, items []any) error {
	parts := []string{"list"}
	for _, item := range items {
		switch v := item.(type) {
		case splice:
			parts = append(parts, "(default list "+string(v)+")")
		case conditional:
			text, ok := v.value.(string)
			if !ok {
				return fmt.Errorf("%v is no string, in a list that may be empty", v.value)
			}
			quoted, err := json.Marshal(text)
			if err != nil {
				return err
			}
			parts = append(parts, fmt.Sprintf("(ternary list (list %s) (not (%s)))", quoted, v.when))
		}
	}
	w.line(indent, "%s {{ concat %s | default list | toJson }}", key, strings.Join(parts, " "))
	return nil
}

// leaf returns a value without conditions.
func leaf(value any, indent int) (string, error) {
	switch v := value.(type) {
	case verbatim:
		return string(v), nil
	case string:
		if !strings.Contains(v, "\n") {
			return scalar(v), nil
		}
		return block(v, indent), nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// scalar returns a string of one line, with quotes where YAML needs them.
func scalar(text string) string {
	encoded, err := yaml.Marshal(text)
	plain := strings.TrimSuffix(string(encoded), "\n")
	if err != nil || strings.Contains(plain, "\n") {
		quoted, _ := json.Marshal(text) // never fails for a string
		plain = string(quoted)
	}
	return escape(plain)
}

// block returns a text of several lines.
func block(text string, indent int) string {
	if strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\n") || strings.HasSuffix(text, "\n\n") || strings.Contains(text, " \n") {
		quoted, _ := json.Marshal(text) // never fails for a string
		return escape(string(quoted))
	}
	header := "|-"
	if strings.HasSuffix(text, "\n") {
		header = "|"
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = strings.Repeat(" ", indent) + line
		}
	}
	return header + "\n" + escape(strings.Join(lines, "\n"))
}

// escape keeps Helm from reading what Prometheus or Grafana are to read.
func escape(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }
