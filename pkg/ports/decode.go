package ports

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Decode reads a table, written by us or by the original system. Whatever it cannot read is an
// error, never an empty table: that would give every file system a new port.
func Decode(text []byte) (Table, error) { return decode(text, true) }

// DecodePinned reads the administrator's table, in which a target need not say its port.
func DecodePinned(text []byte) (Table, error) { return decode(text, false) }

func decode(text []byte, portsRequired bool) (Table, error) {
	fields, err := parse(text)
	if err != nil {
		return Table{}, err
	}
	r := reader{portsRequired: portsRequired}
	table := r.table(fields)
	r.noPortTwice(table)
	return table, r.err
}

// reader turns fields into values, and keeps the first thing that is wrong.
type reader struct {
	portsRequired bool
	err           error
}

func (r *reader) table(f fields) Table {
	if _, ok := f.all[keyTargets]; !ok {
		r.fail(fmt.Errorf("%s: missing; want a mapping of file system ids to targets, {} for none", keyTargets))
	}
	t := Table{
		Targets:    map[string]Target{},
		Source:     r.text(f.take(keySource), anyText),
		Retired:    r.ports(f.take(keyRetired)),
		LastUpdate: r.time(f.take(keyLastUpdate)),
	}
	r.each(f.take(keyTargets), CheckTargetID, func(id string, v value) {
		t.Targets[id] = r.target(r.fields(v))
	})
	t.Unknown = f.rest()
	return t
}

func (r *reader) target(f fields) Target {
	t := Target{
		Name:             r.name(f.take(keyName)),
		Port:             r.port(f.take(keyPort), r.portsRequired),
		AddressBySubnet:  r.addresses(f.take(keyBySubnet)),
		AddressByZone:    r.addresses(f.take(keyByZone)),
		DNSName:          r.text(f.take(keyDNSName), hostName),
		AvailabilityZone: r.text(f.take(keyZone), zoneName),
		NotFoundSince:    r.time(f.take(keyNotFound)),
		PinnedOnly:       r.flag(f.take(keyPinnedOnly)),
		IAM:              r.flag(f.take(keyIAM)),
		AccessPoints:     r.accessPoints(f.take(keyAccessPoints)),
	}
	t.Unknown = f.rest()
	return t
}

func (r *reader) accessPoints(v value) map[string]AccessPoint {
	if v.json == nil {
		return nil
	}
	points := map[string]AccessPoint{}
	r.each(v, efs.CheckAccessPointID, func(id string, v value) {
		f := r.fields(v)
		points[id] = AccessPoint{Port: r.port(f.take(keyPort), r.portsRequired), IAM: r.flag(f.take(keyIAM)), Unknown: f.rest()}
	})
	return points
}

// addresses may be missing: the original system asks for them and lives without them.
func (r *reader) addresses(v value) map[string]netip.Addr {
	if v.json == nil {
		return nil
	}
	addresses := map[string]netip.Addr{}
	r.each(v, checkPlace, func(place string, v value) {
		address, err := netip.ParseAddr(r.text(v, anyText))
		if err != nil || address.Zone() != "" {
			r.want(v, "an IP address")
		}
		addresses[place] = address
	})
	return addresses
}

func (r *reader) ports(v value) []int {
	if v.json == nil {
		return nil
	}
	list, ok := v.json.([]any)
	if !ok {
		r.want(v, "a list of ports")
	}
	var ports []int
	for i, item := range list {
		ports = append(ports, r.port(v.at(fmt.Sprintf("%s[%d]", v.path, i), item), true))
	}
	return ports
}

func (r *reader) port(v value, required bool) int {
	if v.json == nil && !required {
		return 0
	}
	port, ok := v.integer()
	if !ok || port < 1 || port > wellknown.MaxPort {
		r.want(v, fmt.Sprintf("a port, 1 to %d", wellknown.MaxPort))
		return 0
	}
	return port
}

// timeForms are ours and the original's, and what its YAML library makes of an unquoted one.
var timeForms = []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05"}

func (r *reader) time(v value) time.Time {
	text := r.text(v, anyText)
	if text == "" {
		return time.Time{}
	}
	for _, form := range timeForms {
		// Zero is our word for no time, and four digits of year are what the format has.
		if t, err := time.Parse(form, text); err == nil && !t.IsZero() && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 {
			return t.UTC().Truncate(time.Second)
		}
	}
	r.want(v, "a time like 2026-01-02T03:04:05Z")
	return time.Time{}
}

func (r *reader) flag(v value) bool {
	flag, ok := v.json.(bool)
	if !ok && v.json != nil {
		r.want(v, "true or false")
	}
	return flag
}

// form is what a text must look like; it may always be missing.
type form struct {
	pattern *regexp.Regexp // nil for any
	want    string
}

var (
	anyText  = form{want: "a string"}
	hostName = form{
		pattern: regexp.MustCompile(`^[0-9A-Za-z]([-.0-9A-Za-z]{0,251}[0-9A-Za-z])?$`),
		want:    "a host name",
	}
	zoneName = form{
		pattern: regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?$`),
		want:    "an availability zone's name",
	}
)

func (r *reader) text(v value, form form) string {
	text, ok := v.json.(string)
	if v.json == nil || ok && text == "" {
		return ""
	}
	if !ok || form.pattern != nil && !form.pattern.MatchString(text) {
		r.want(v, form.want)
		return ""
	}
	return text
}

// name forgives what the original's YAML library leaves unquoted and ours takes for a number or
// a truth: the next listing knows the name better.
func (r *reader) name(v value) string {
	switch v.json.(type) {
	case json.Number, bool:
		return fmt.Sprint(v.json)
	}
	return r.text(v, anyText)
}

// checkPlace is for ids of subnets and names of zones, which only serve to be compared.
func checkPlace(place string) error {
	if place == "" || strings.ContainsFunc(place, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("%s is no name of a subnet or zone: want one without spaces", excerpt(place))
	}
	return nil
}

// noPortTwice refuses a table in which two tunnels would fight for a port: one of them would
// carry the other's volumes.
func (r *reader) noPortTwice(t Table) {
	owners := map[int]Key{}
	for _, key := range t.Keys() {
		port, _ := t.Port(key)
		if owner, taken := owners[port]; taken && port != 0 {
			r.fail(fmt.Errorf("%s of %s: %d is also that of %s; want each port once", keyPort, key, port, owner))
		}
		owners[port] = key
	}
}

// fail keeps the first error: the fields are read in a fixed order, so it is always the same.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) want(v value, allowed string) {
	if v.json == nil {
		r.fail(fmt.Errorf("%s: missing; want %s", v.path, allowed))
		return
	}
	r.fail(fmt.Errorf("%s: %s; want %s", v.path, v, allowed))
}
