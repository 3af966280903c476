package operations

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// CheckPath says why a path cannot be a volume's. A path that passes has one spelling and means the
// same to every program. Symbolic links are checked when mountjob walks the path.
func CheckPath(p string) error {
	switch {
	case p == "":
		return errors.New("the path is empty")
	case p[0] != '/':
		return fmt.Errorf("the path %q does not start with /", Truncate(p, 256))
	case p == "/":
		return errors.New("the path / is the whole file system")
	case len(p) > wellknown.MaxPathBytes:
		return fmt.Errorf("the path %q… has %d bytes, more than %d", Truncate(p, 64), len(p), wellknown.MaxPathBytes)
	}
	for component := range strings.SplitSeq(p[1:], "/") {
		if err := checkComponent(component); err != nil {
			return fmt.Errorf("the path %q %w", Truncate(p, 256), err)
		}
	}
	if p == wellknown.StateDirectory || strings.HasPrefix(p, wellknown.StateDirectory+"/") {
		return fmt.Errorf("the path %q is in %s, where no volume may be", Truncate(p, 256), wellknown.StateDirectory)
	}
	return nil
}

func checkComponent(component string) error {
	switch {
	case component == "":
		return errors.New("has an empty component")
	case component == "." || component == "..":
		return fmt.Errorf("has the component %s", component)
	case len(component) > wellknown.MaxComponentBytes:
		return fmt.Errorf("has a component of %d bytes, more than %d", len(component), wellknown.MaxComponentBytes)
	case strings.HasPrefix(component, wellknown.OwnerPrefix):
		return fmt.Errorf("has a component that starts with %s, which is reserved", wellknown.OwnerPrefix)
	case strings.Contains(component, `\`):
		return errors.New("has a backslash")
	case !utf8.ValidString(component):
		return errors.New("is not valid UTF-8") // JSON would replace the bytes: mountjob would get another path
	case strings.ContainsFunc(component, unicode.IsControl):
		return errors.New("has a control character")
	}
	return nil
}

// Truncate shortens s to at most n bytes, and never inside a character.
func Truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Shorten truncates s to at most n bytes, the last of which show that it was longer.
func Shorten(s string, n int) string {
	const ellipsis = "…"
	if len(s) <= n {
		return s
	}
	return Truncate(s, max(n-len(ellipsis), 0)) + ellipsis
}
