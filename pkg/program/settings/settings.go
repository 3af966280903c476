// Package settings reads the settings of a program. Each is a flag; some are an environment variable, too,
// which the flag overrides. An error is one line that names the setting as it was given, the value, and
// what is allowed.
package settings

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// ErrHelp is returned by Parse for --help. The caller prints Help then.
var ErrHelp = pflag.ErrHelp

// helpColumns is the width of a usual terminal and of a page.
const helpColumns = 100

// Set is the settings of one program.
type Set struct {
	groups []*Group
	flags  *pflag.FlagSet    // all groups
	env    map[string]string // flag -> variable
	origin map[string]string // flag -> how it was given
}

// Group is settings that belong together in the help.
type Group struct {
	title string
	set   *Set
	flags *pflag.FlagSet
}

// New makes an empty set.
func New(program string) *Set {
	return &Set{flags: newFlagSet(program), env: map[string]string{}, origin: map[string]string{}}
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
	g := &Group{title: title, set: s, flags: newFlagSet(title)}
	s.groups = append(s.groups, g)
	return g
}

// Add adds a setting. env is "" if it has no variable. The first word in backquotes in the
// usage is the name of the value in the help.
func (g *Group) Add(value pflag.Value, name, env, usage string) {
	if env != "" {
		g.set.env[name] = env
		usage += " [$" + env + "]"
	}
	flag := g.flags.VarPF(value, name, "", usage)
	if value.Type() == typeBool {
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
	err := s.flags.Parse(args)
	if name, ok := s.singleDash(args, err); ok {
		return fmt.Errorf("-%s: flags begin with two dashes; write --%s", name, name)
	}
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

// singleDash finds a flag that was written with one dash, which programs with Go's own flag package
// accept. pflag parses it as one-letter flags, of which there are none here, and the h of
// -http-address as a request for help.
func (s *Set) singleDash(args []string, err error) (name string, ok bool) {
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		args = []string{"-" + unknown.GetSpecifiedShortnames()}
	} else if !errors.Is(err, pflag.ErrHelp) {
		return "", false
	}
	for _, arg := range args {
		name, _, _ = strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && s.flags.Lookup(name) != nil {
			return name, true
		}
	}
	return "", false
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

// Help returns the description of all settings.
func (s *Set) Help() string {
	var text strings.Builder
	for _, g := range s.groups {
		fmt.Fprintf(&text, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(helpColumns))
	}
	return text.String()
}
