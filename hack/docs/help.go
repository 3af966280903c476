package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// group is a group of settings in the help.
type group struct {
	title    string
	settings []setting
}

// setting is one flag.
type setting struct {
	flag     string
	kind     string // the value's name in the help; "" for a flag without value
	variable string // of the environment, "" for none
	standard string // default; "" if the help has none
	meaning  string
}

var (
	longTitle  = regexp.MustCompile(`^(\S.*):$`)
	longFlag   = regexp.MustCompile(`^ {6}--([a-z-]+)(?: (\S+))? {2,}(\S.*)$`)
	longMore   = regexp.MustCompile(`^ {7,}(\S.*)$`)
	shortTitle = regexp.MustCompile(`^Flags of .*:$`)
	shortFlag  = regexp.MustCompile(`^ {2}-([a-z-]+)(?: (\S+))?$`)
	shortMore  = regexp.MustCompile(`^ {4}\t(.*)$`)
	tail       = regexp.MustCompile(`^(.*?)(?: \[\$([A-Z_]+)\])?(?: \(default "?([^"]+?)"?\))?$`)
)

// usage has the form of a group's title, but is none.
const usage = "Usage:"

var errNoSettings = errors.New("the help has no settings")

// parseLongHelp parses the help of package settings.
func parseLongHelp(help string) ([]group, error) {
	var groups []group
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		last := lastGroup(groups)
		switch {
		case line == "":
		case longTitle.MatchString(line) && line != usage:
			groups = append(groups, group{title: longTitle.FindStringSubmatch(line)[1]})
		case last != nil && longFlag.MatchString(line):
			m := longFlag.FindStringSubmatch(line)
			last.settings = append(last.settings, setting{flag: "--" + m[1], kind: m[2], meaning: m[3]})
		case last != nil && len(last.settings) > 0 && longMore.MatchString(line):
			last.settings[len(last.settings)-1].meaning += " " + longMore.FindStringSubmatch(line)[1]
		case last != nil: // lines before the first group describe the program
			return nil, fmt.Errorf("the help has an unexpected line: %q", line)
		}
	}
	return finish(groups)
}

// parseShortHelp parses the help of the standard library's package flag.
func parseShortHelp(help string) ([]group, error) {
	groups := []group{{}}
	one := &groups[0]
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || shortTitle.MatchString(line):
		case shortFlag.MatchString(line):
			m := shortFlag.FindStringSubmatch(line)
			one.settings = append(one.settings, setting{flag: "--" + m[1], kind: m[2]})
		case len(one.settings) > 0 && shortMore.MatchString(line):
			last := &one.settings[len(one.settings)-1]
			last.meaning = strings.TrimSpace(last.meaning + " " + shortMore.FindStringSubmatch(line)[1])
		default:
			return nil, fmt.Errorf("the help has an unexpected line: %q", line)
		}
	}
	return finish(groups)
}

func lastGroup(groups []group) *group {
	if len(groups) == 0 {
		return nil
	}
	return &groups[len(groups)-1]
}

// finish moves variable and default out of the meanings, after these are complete.
func finish(groups []group) ([]group, error) {
	found := 0
	for _, g := range groups {
		for i := range g.settings {
			s := &g.settings[i]
			m := tail.FindStringSubmatch(s.meaning)
			s.meaning, s.variable, s.standard = m[1], m[2], m[3]
			found++
		}
	}
	if found == 0 {
		return nil, errNoSettings
	}
	return groups, nil
}
