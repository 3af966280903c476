package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// typeBool is what pflag calls flags that need no value.
const typeBool = "bool"

// value is a setting of any type. Its target has the default until it is set.
type value[T any] struct {
	target *T
	kind   string // name of the value in the help
	parse  func(string) (T, error)
	format func(T) string
}

// Set implements pflag.Value. The error says what is allowed.
func (v *value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return err
	}
	*v.target = parsed
	return nil
}

// String implements pflag.Value.
func (v *value[T]) String() string {
	if v.target == nil {
		return "" // pflag compares defaults with that of a zero value
	}
	return v.format(*v.target)
}

// Type implements pflag.Value.
func (v *value[T]) Type() string { return v.kind }

// Parsed is a setting with a parser and, unless format is nil, a formatter.
func Parsed[T any](target *T, kind string, parse func(string) (T, error), format func(T) string) pflag.Value {
	text := ""
	if format == nil {
		format = func(T) string { return text }
	}
	return &value[T]{target, kind, func(given string) (T, error) {
		text = given
		return parse(given)
	}, format}
}

// Text is a setting of any text that passes a check, whose error says what is allowed.
func Text(target *string, kind string, check func(string) error) pflag.Value {
	return &value[string]{target, kind, func(text string) (string, error) {
		return text, check(text)
	}, func(text string) string { return text }}
}

// OneOf is a setting with a few values, in any case.
func OneOf(target *string, kind string, allowed ...string) pflag.Value {
	return &value[string]{target, kind, func(text string) (string, error) {
		i := slices.IndexFunc(allowed, func(a string) bool { return strings.EqualFold(a, text) })
		if i < 0 {
			return "", fmt.Errorf("want %s", strings.Join(allowed, " or "))
		}
		return allowed[i], nil
	}, func(text string) string { return text }}
}

// Integer is a whole number within limits.
func Integer(target *int, least, most int) pflag.Value {
	return &value[int]{target, "int", func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("want a whole number from %d to %d", least, most)
		}
		return n, nil
	}, strconv.Itoa}
}

// Positive is a number above 0, with or without a fraction.
func Positive(target *float32) pflag.Value {
	return &value[float32]{target, "number", func(text string) (float32, error) {
		n, err := strconv.ParseFloat(text, 32)
		if err != nil || !(n > 0) || n > 1e6 { // NaN is not above 0
			return 0, errors.New("want a number above 0, up to 1000000")
		}
		return float32(n), nil
	}, func(n float32) string { return strconv.FormatFloat(float64(n), 'g', -1, 32) }}
}

// Bool is on or off.
func Bool(target *bool) pflag.Value {
	return &value[bool]{target, typeBool, func(text string) (bool, error) {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return false, errors.New("want true or false")
		}
		return on, nil
	}, strconv.FormatBool}
}

// Duration is a time within limits, such as 5m or 300s. A plain number is in seconds, as in the
// variables of the original system.
func Duration(target *time.Duration, least, most time.Duration) pflag.Value {
	return &value[time.Duration]{target, "duration", func(text string) (time.Duration, error) {
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			text += "s"
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < least || d > most {
			return 0, fmt.Errorf("want a duration such as 90s or 5m, or a number of seconds, from %s to %s", Short(least), Short(most))
		}
		return d, nil
	}, Short}
}

// Short writes a duration without the zeros that time.Duration's own form has: 5m, not 5m0s.
func Short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// List is comma-separated items, each of which passes a check. Spaces and empty items are ignored.
func List(target *[]string, kind string, check func(string) error) pflag.Value {
	return &value[[]string]{target, kind, func(text string) ([]string, error) {
		var items []string
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			if err := check(item); err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		return items, nil
	}, func(items []string) string { return strings.Join(items, ",") }}
}
