package ports

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

// check returns an error that says what is allowed unless a value is. The path is for the error.
type check func(path string, v *yaml.Node) error

var (
	hostName = regexp.MustCompile(`^[0-9A-Za-z]([-.0-9A-Za-z]{0,251}[0-9A-Za-z])?$`)
	zoneName = regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?$`)

	port    = scalar(fmt.Sprintf("a port, 1 to %d", wellknown.MaxPort), isWithin(wellknown.MaxPort))
	text    = optional(scalar("a string", isText))
	flag    = optional(scalar("true or false", func(v *yaml.Node) bool { return v.Decode(new(bool)) == nil }))
	lanes   = optional(scalar(fmt.Sprintf("a number of connections, 1 to %d", tunnelspec.MaxLanes), isWithin(tunnelspec.MaxLanes)))
	address = scalar("an IP address", func(v *yaml.Node) bool { return parseAddress(v).IsValid() })
	ipv6    = scalar("an IPv6 address", func(v *yaml.Node) bool { return parseAddress(v).Is6() && !parseAddress(v).Is4In6() })
	moment  = optional(scalar("a time like 2026-01-02T03:04:05Z", setTime))
	// anyName accepts what the original's YAML library leaves unquoted and ours takes for a number or
	// a boolean: the next listing has the name as it is.
	anyName = optional(scalar("a string", func(*yaml.Node) bool { return true }))

	tableFields = fields(map[string]check{
		"account_and_region": text,
		"retired_ports":      optional(list("a list of ports", port)),
		"last_update":        moment,
	})
)

// targetFields checks a target; a missing one is valid where all its fields may be missing.
func targetFields(portsRequired bool) check {
	mayLack := func(c check) check {
		if portsRequired {
			return c
		}
		return optional(c)
	}
	return mayLack(fields(map[string]check{
		"name":                        anyName,
		keyPort:                       mayLack(port),
		"mount_target_ip_by_subnet":   each(checkLocation, address),
		"mount_target_ip_by_zone":     each(checkLocation, address),
		"mount_target_ipv6_by_subnet": each(checkLocation, ipv6),
		"mount_target_ipv6_by_zone":   each(checkLocation, ipv6),
		"dns_name":                    match(hostName, "a host name"),
		"availability_zone":           match(zoneName, "an availability zone's name"),
		"ca_certificates":             optional(authorities),
		"client_certificate":          flag,
		"not_found_since":             moment,
		"pinned_only":                 flag,
		"iam":                         flag,
		"lanes":                       lanes,
		"access_points": each(efs.CheckAccessPointID, mayLack(fields(map[string]check{
			keyPort: mayLack(port),
			"iam":   flag,
		}))),
	}))
}

// optional also accepts a missing value.
func optional(c check) check {
	return func(path string, v *yaml.Node) error {
		if v.ShortTag() == "!!null" {
			return nil
		}
		return c(path, v)
	}
}

func scalar(allowed string, valid func(v *yaml.Node) bool) check {
	return func(path string, v *yaml.Node) error {
		if v.Kind == yaml.ScalarNode && valid(v) {
			return nil
		}
		return want(path, v, allowed)
	}
}

// match accepts a string that is missing, empty or of the pattern.
func match(pattern *regexp.Regexp, allowed string) check {
	return optional(scalar(allowed, func(v *yaml.Node) bool {
		return isText(v) && (v.Value == "" || pattern.MatchString(v.Value))
	}))
}

func list(allowed string, item check) check {
	return func(path string, v *yaml.Node) error {
		if v.Kind != yaml.SequenceNode {
			return want(path, v, allowed)
		}
		for i, n := range v.Content {
			if err := item(fmt.Sprintf("%s[%d]", path, i), n); err != nil {
				return err
			}
		}
		return nil
	}
}

func fields(checks map[string]check) check {
	return func(path string, v *yaml.Node) error {
		if v.Kind != yaml.MappingNode {
			return want(path, v, "a mapping")
		}
		values := map[string]*yaml.Node{}
		for field := range slices.Chunk(v.Content, 2) {
			values[field[0].Value] = field[1]
		}
		for _, key := range slices.Sorted(maps.Keys(checks)) {
			value, exists := values[key]
			if !exists {
				value = node(nil)
			}
			if err := checks[key](join(path, key), value); err != nil {
				return err
			}
		}
		return nil
	}
}

// each checks the keys and values of an optional mapping.
func each(checkKey func(string) error, value check) check {
	return optional(func(path string, v *yaml.Node) error {
		if v.Kind != yaml.MappingNode {
			return want(path, v, "a mapping")
		}
		for field := range slices.Chunk(v.Content, 2) {
			if err := checkKey(field[0].Value); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := value(join(path, field[0].Value), field[1]); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkShape refuses what could be read and not be written again.
func checkShape(n *yaml.Node, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: nested too deeply; want at most %d levels", path, maxDepth)
	}
	key := ""
	for i, child := range n.Content {
		childPath := fmt.Sprintf("%s[%d]", path, i)
		if n.Kind == yaml.MappingNode {
			childPath = join(path, key)
		}
		switch {
		case n.Kind == yaml.SequenceNode || i%2 == 1:
			if err := checkShape(child, childPath, depth+1); err != nil {
				return err
			}
		case len(child.Value) > maxKeyBytes:
			return fmt.Errorf("%s: key %.60q is too long; want at most %d bytes", path, child.Value, maxKeyBytes)
		case i > 0 && child.Value == key:
			return fmt.Errorf("%s: key %q occurs twice", path, key)
		default:
			key = child.Value
		}
	}
	return nil
}

func isText(v *yaml.Node) bool { return v.ShortTag() == "!!str" }

func isWithin(highest int) func(v *yaml.Node) bool {
	return func(v *yaml.Node) bool {
		n, err := strconv.Atoi(v.Value)
		return err == nil && v.ShortTag() == "!!int" && 1 <= n && n <= highest
	}
}

// parseAddress returns no valid address for one with a zone.
func parseAddress(v *yaml.Node) netip.Addr {
	address, err := netip.ParseAddr(v.Value)
	if err != nil || !isText(v) || address.Zone() != "" {
		return netip.Addr{}
	}
	return address
}

// timeForms are ours and the original's, and what its YAML library makes of an unquoted one.
var timeForms = []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05"}

// setTime makes a string that is a time into the library's form of it, and an empty one into none.
func setTime(v *yaml.Node) bool {
	if v.Value == "" {
		*v = *node(nil)
		return true
	}
	for _, form := range timeForms {
		at, err := time.Parse(form, v.Value)
		// The zero time means none, and the format has four digits for the year.
		if at = at.UTC(); isText(v) && err == nil && !at.IsZero() && at.Year() >= 1 && at.Year() <= 9999 {
			v.Tag, v.Value, v.Style = "!!timestamp", at.Format(time.RFC3339), 0
			return true
		}
	}
	return false
}

// checkLocation is for ids of subnets and names of zones, which are only compared.
func checkLocation(location string) error {
	if location == "" || strings.ContainsFunc(location, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("%.60q is no name of a subnet or zone: want one without spaces", location)
	}
	return nil
}

func want(path string, v *yaml.Node, allowed string) error {
	return fmt.Errorf("%s: %s; want %s", path, shown(v), allowed)
}

// shown returns a value for error messages, short whatever the file contains.
func shown(v *yaml.Node) string {
	if v.ShortTag() == "!!null" {
		return "missing"
	}
	var content any
	_ = v.Decode(&content)
	encoded, err := json.Marshal(content)
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
