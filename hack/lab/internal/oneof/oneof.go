// Package oneof checks texts that must be one of a fixed list.
package oneof

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Check returns an error that lists the allowed values, unless value is one of them. The error
// begins with what, the name of the field or flag.
func Check[S ~string](what string, value S, allowed []S) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s %q: want one of %s", what, value, Join(allowed))
}

// Join lists values in a message.
func Join[S ~string](values []S) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

// Flag returns the value of a command-line flag that accepts one of the allowed values.
func Flag[S ~string](value *S, allowed []S) pflag.Value { return flag[S]{value, allowed} }

type flag[S ~string] struct {
	value   *S
	allowed []S
}

func (f flag[S]) Set(text string) error {
	if err := Check("value", S(text), f.allowed); err != nil {
		return err
	}
	*f.value = S(text)
	return nil
}

func (f flag[S]) String() string { return string(*f.value) }

// Type stands for the value in the help.
func (flag[S]) Type() string { return "string" }
