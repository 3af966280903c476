package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// Formats lists those of Write; "" is text.
func Formats() []string { return []string{"json", "yaml"} }

// CheckFormat returns an error unless Write has the format.
func CheckFormat(format string) error {
	if format == "" || slices.Contains(Formats(), format) {
		return nil
	}
	return fmt.Errorf("output format %q: want one of: %s", format, strings.Join(Formats(), ", "))
}

// Report is a value for Write.
type Report interface {
	write(w *writer, now time.Time)
}

// Write prints a Status or a Diagnosis. Whatever objects contain, the output has no control character
// and no invalid UTF-8 that came from them.
func Write[T Report](out io.Writer, format string, r T, now time.Time) error {
	Clean(&r)
	var text []byte
	var err error
	switch format {
	case "json":
		text, err = json.MarshalIndent(r, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(r)
	case "":
		w := &writer{}
		r.write(w, now)
		text = []byte(w.text.String())
	default:
		err = CheckFormat(format)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// Clean replaces every string of a value with Line of it.
func Clean[T any](value *T) { clean(reflect.ValueOf(value).Elem()) }

// clean does so for Clean.
func clean(value reflect.Value) {
	switch value.Kind() {
	case reflect.String:
		if value.CanSet() {
			value.SetString(Line(value.String()))
		}
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			clean(value.Elem())
		}
	case reflect.Slice:
		for i := range value.Len() {
			clean(value.Index(i))
		}
	case reflect.Struct:
		for field, content := range value.Fields() {
			if field.IsExported() { // no other is printed
				clean(content)
			}
		}
	case reflect.Map:
		cleanMap(value)
	default:
	}
}

// cleanMap replaces keys, too.
func cleanMap(value reflect.Value) {
	for _, key := range value.MapKeys() {
		newKey, element := reflect.New(key.Type()).Elem(), reflect.New(value.Type().Elem()).Elem()
		newKey.Set(key)
		element.Set(value.MapIndex(key))
		clean(newKey)
		clean(element)
		value.SetMapIndex(key, reflect.Value{})
		value.SetMapIndex(newKey, element)
	}
}

// Line returns text of an object on one line, for a terminal: spaces for white space, and question marks for
// characters that are not shown, or that change how others are.
func Line(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError, !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return strings.TrimSpace(text)
}

// writer lays out text. Its arguments are clean.
type writer struct{ text strings.Builder }

func (w *writer) line(format string, args ...any) { fmt.Fprintf(&w.text, format+"\n", args...) }

// section prints rows below a title and an empty line, most of them at most.
func (w *writer) section(title string, rows [][]string, most int) {
	if w.line(""); title != "" {
		w.line("%s", title)
	}
	w.rows(rows[:min(len(rows), most+1)])
	if hidden := len(rows) - 1 - most; hidden > 0 {
		w.line("… and %d more: -o json has all", hidden)
	}
}

// rows prints nothing but for a heading, of which there must be more.
func (w *writer) rows(rows [][]string) {
	if len(rows) < 2 {
		return
	}
	tab := printers.GetNewTabWriter(&w.text)
	for _, row := range rows {
		fmt.Fprintln(tab, strings.TrimRight(strings.Join(row, "\t"), "\t "))
	}
	_ = tab.Flush() // a strings.Builder takes everything
}

// short returns as much of a message as a table has; the whole is among the problems.
func short(message string) string {
	const most = 60
	if characters := []rune(message); len(characters) > most {
		return string(characters[:most-1]) + "…"
	}
	return message
}

// results leaves out most where a single cause has many claims wait.
func (w *writer) results(results []Result) {
	ofClaims := 0
	for _, r := range results {
		if kind, _ := split(r.part()); kind == KindClaim {
			if ofClaims++; ofClaims > shownRows {
				continue
			}
		}
		w.line("\n%s %s", strings.ToUpper(string(r.Level)), join(r.Object, string(r.Cause)))
		w.line("  %s", r.Message)
		if r.Remedy != "" {
			w.line("  do: %s", r.Remedy)
		}
	}
	if hidden := ofClaims - shownRows; hidden > 0 {
		w.line("\n… and %d more claims or volumes: -o json has all", hidden)
	}
}

// WriteRows prints a value as JSON or YAML, or as the rows of a table, of which the first has the headings.
// It cleans the value as Write does.
func WriteRows[T any](out io.Writer, format string, value T, rows func(T) [][]string) error {
	return Write(out, format, &tabular[T]{Value: value, rows: rows}, time.Time{})
}

type tabular[T any] struct {
	Value T
	rows  func(T) [][]string
}

func (t *tabular[T]) write(w *writer, _ time.Time) { w.rows(t.rows(t.Value)) }

// MarshalJSON writes the value alone.
func (t *tabular[T]) MarshalJSON() ([]byte, error) { return json.Marshal(t.Value) }

const (
	noProblem     = "no problem found"
	noProblemRead = "no problem found, but you may not read everything"
)

// Summary returns the level in words.
func (s Status) Summary() string {
	switch s.Level {
	case Problem:
		return s.problemsText()
	case Unknown:
		return noProblemRead
	case OK, Note:
	}
	return "healthy"
}

// problemsText counts problems of the installation apart from those of single objects, which tenants make.
func (s Status) problemsText() string {
	counts := map[string]int{}
	for _, r := range s.Problems {
		if r.layer < classes {
			r.check = "installation"
		}
		counts[r.check]++
	}
	texts := []string{"installation: " + count(counts["installation"], "problem")}
	for _, check := range []string{"claims", "classes", "volumes", "shared volumes"} {
		if counts[check] > 0 {
			texts = append(texts, check+": "+count(counts[check], "problem"))
		}
	}
	return strings.Join(texts, "; ")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
