// Package printing prints reports as text, JSON or YAML, without control characters of objects.
package printing

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
	Print(w *Writer, now time.Time)
}

// Write prints a report. Whatever objects contain, the output has no control character and no invalid UTF-8 of them.
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
		w := &Writer{}
		r.Print(w, now)
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
			if field.IsExported() && field.Tag.Get("json") != "-" { // no other is printed
				clean(content)
			}
		}
	case reflect.Map:
		cleanMap(value)
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

// Writer lays out text. Its arguments are clean.
type Writer struct{ text strings.Builder }

// Line writes one line.
func (w *Writer) Line(format string, args ...any) { fmt.Fprintf(&w.text, format+"\n", args...) }

// Section prints rows below a title and an empty line, most of them at most.
func (w *Writer) Section(title string, rows [][]string, most int) {
	if w.Line(""); title != "" {
		w.Line("%s", title)
	}
	w.Rows(rows[:min(len(rows), most+1)])
	if hidden := len(rows) - 1 - most; hidden > 0 {
		w.Line("… and %d more: -o json has all", hidden)
	}
}

// Rows prints nothing but for a heading, of which there must be more.
func (w *Writer) Rows(rows [][]string) {
	if len(rows) < 2 {
		return
	}
	tab := printers.GetNewTabWriter(&w.text)
	for _, row := range rows {
		fmt.Fprintln(tab, strings.TrimRight(strings.Join(row, "\t"), "\t "))
	}
	_ = tab.Flush() // a strings.Builder takes everything
}

// Short returns as much of a message as a table has; the whole is among the problems.
func Short(message string) string {
	const most = 60
	if characters := []rune(message); len(characters) > most {
		return string(characters[:most-1]) + "…"
	}
	return message
}

// WriteRows prints a list as JSON or YAML, or the rows of its table, headings first. It cleans a copy of the list.
func WriteRows[T any](out io.Writer, format string, list []T, rows [][]string) error {
	return Write(out, format, &tabular[T]{append([]T{}, list...), rows}, time.Time{})
}

type tabular[T any] struct {
	List  []T
	Table [][]string
}

// Print implements Report.
func (t *tabular[T]) Print(w *Writer, _ time.Time) { w.Rows(t.Table) }

// MarshalJSON writes the list alone.
func (t *tabular[T]) MarshalJSON() ([]byte, error) { return json.Marshal(t.List) }

// Count returns a number of things in words.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Size returns a number of bytes in the largest unit of which there is one.
func Size(bytes int64) string {
	value, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	for len(units) > 1 && value >= 1024 {
		value, units = value/1024, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", value, units[0])
}
