// Package settings reads the settings of a program. Each is a flag; some are an environment variable, too,
// which the flag overrides. An error is one line that names the setting as it was given, the value, and
// what is allowed.
package settings

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// ErrHelp is returned by Parse for --help. The caller prints Help then.
var ErrHelp = pflag.ErrHelp

// Set is the settings of one program.
type Set struct {
	groups []*Group
	rare   *Group            // comes last in the help
	flags  *pflag.FlagSet    // all groups
	env    map[string]string // flag -> variable
	origin map[string]string // flag -> how it was given
}

// Group is settings that belong together in the help.
type Group struct {
	set   *Set
	flags *pflag.FlagSet // named by the heading
}

// New makes an empty set.
func New(program string) *Set {
	s := &Set{flags: newFlagSet(program), env: map[string]string{}, origin: map[string]string{}}
	s.rare = &Group{s, newFlagSet("Rarely needed")}
	return s
}

// newFlagSet keeps pflag from writing: the caller prints the error.
func newFlagSet(name string) *pflag.FlagSet {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.SortFlags = false
	return flags
}

// Program returns the name of the program.
func (s *Set) Program() string { return s.flags.Name() }

// Group begins a group.
func (s *Set) Group(title string) *Group {
	g := &Group{s, newFlagSet(title)}
	s.groups = append(s.groups, g)
	return g
}

// Rare returns the group of the settings that few installations need. They would hide the others in the help.
func (g *Group) Rare() *Group { return g.set.rare }

// Add adds a setting. env is "" if it has no variable. The first word in backquotes in the
// usage is the name of the value in the help.
func (g *Group) Add(setting pflag.Value, name, env, usage string) {
	if env != "" {
		g.set.env[name] = env
		usage += " [$" + env + "]"
	}
	flag := g.flags.VarPF(setting, name, "", usage)
	if _, isBool := setting.(*value[bool]); isBool {
		flag.NoOptDefVal = "true"
	}
	g.set.flags.AddFlag(flag)
}

// Parse sets the values from variables, then from arguments. An empty variable
// counts as unset: optional references in manifests are empty.
func (s *Set) Parse(args []string, getenv func(string) string) error {
	if err := s.parseFlags(args); err != nil {
		return err
	}
	if s.flags.NArg() > 0 {
		return fmt.Errorf("argument %q: %s takes flags only", s.flags.Arg(0), s.flags.Name())
	}
	return s.parseEnv(getenv)
}

func (s *Set) parseFlags(args []string) error {
	// Programs with Go's own flag package accept one dash. pflag takes what follows for one-letter flags, of
	// which there are none here, and the h of -http-address for a request for help.
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && s.flags.Lookup(name) != nil {
			return fmt.Errorf("-%s: flags begin with two dashes; write --%s", name, name)
		}
	}
	err := s.flags.Parse(args)
	invalid, unknown, empty := (*pflag.InvalidValueError)(nil), (*pflag.NotExistError)(nil), (*pflag.ValueRequiredError)(nil)
	switch {
	case errors.As(err, &invalid):
		return wrong("--"+invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("-%s: there is no such flag; see --help", unknown.GetSpecifiedShortnames())
	case errors.As(err, &unknown):
		return fmt.Errorf("--%s: there is no such flag; see --help", unknown.GetSpecifiedName())
	case errors.As(err, &empty):
		return fmt.Errorf("--%s: want a value", empty.GetSpecifiedName())
	}
	return err
}

// parseEnv ignores variables of flags that were given, valid or not.
func (s *Set) parseEnv(getenv func(string) string) (err error) {
	s.flags.VisitAll(func(flag *pflag.Flag) {
		variable := s.env[flag.Name]
		if err != nil || variable == "" || flag.Changed {
			return
		}
		text := getenv(variable)
		if text == "" {
			return
		}
		s.origin[flag.Name] = variable
		if cause := flag.Value.Set(text); cause != nil {
			err = wrong(variable, text, cause)
		}
	})
	return err
}

// Wrong returns the error of a setting whose value is valid alone, but not together with others.
func (s *Set) Wrong(name string, cause error) error {
	return wrong(s.Origin(name), s.flags.Lookup(name).Value.String(), cause)
}

func wrong(origin, value string, cause error) error {
	return fmt.Errorf("%s %q: %w", origin, value, cause)
}

// Origin returns the name of a setting as it was given: its variable if the value comes from there, else
// its flag.
func (s *Set) Origin(name string) string {
	if variable, ok := s.origin[name]; ok {
		return variable
	}
	return "--" + name
}

// Names returns the flag of a setting, and its variable if it has one.
func (s *Set) Names(name string) string {
	if variable, ok := s.env[name]; ok {
		return "--" + name + " or " + variable
	}
	return "--" + name
}

// Help returns the description of all settings, as wide as a usual terminal and a page.
func (s *Set) Help() string {
	var text strings.Builder
	for _, g := range append(slices.Clone(s.groups), s.rare) {
		if g.flags.HasFlags() {
			fmt.Fprintf(&text, "\n%s:\n%s", g.flags.Name(), g.flags.FlagUsagesWrapped(100))
		}
	}
	return text.String()
}

// value is a setting of any type. Its target has the default until it is set.
type value[T any] struct {
	target *T
	kind   string                  // name of the value in the help
	parse  func(string) (T, error) // the error says what is allowed
	format func(T) string
}

func (v *value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return err
	}
	*v.target = parsed
	return nil
}

func (v *value[T]) String() string { return v.format(*v.target) }

func (v *value[T]) Type() string { return v.kind }

// Parsed is a setting with a parser and a formatter, which is nil if there is no default to show.
func Parsed[T any](target *T, kind string, parse func(string) (T, error), format func(T) string) pflag.Value {
	if format == nil {
		format = func(T) string { return "" }
	}
	return &value[T]{target, kind, parse, format}
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
	return &value[bool]{target, "bool", func(text string) (bool, error) {
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

// CheckAddress returns an error if a text is not host:port or :port.
func CheckAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return errors.New("want host:port or :port, with a port up to 65535")
	}
	return nil
}
