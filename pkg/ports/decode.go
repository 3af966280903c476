package ports

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

// Decode reads a table, written by us or by the original system. Whatever it cannot read is an
// error, never an empty table: that would give every file system a new port.
func Decode(text []byte) (Table, error) {
	table, d := decode(text, true)
	return table, d.err
}

// DecodePinned reads the administrator's table, in which a target need not have a port.
func DecodePinned(text []byte) (Table, error) {
	table, d := decode(text, false)
	return table, d.err
}

// DecodeLenient is Decode for a reader that has to continue with what can be read: with an error, it
// also returns the valid targets, and the error of each invalid one by its key in the text.
func DecodeLenient(text []byte) (table Table, invalid map[string]error, err error) {
	table, d := decode(text, true)
	return table, d.invalid, d.err
}

func decode(text []byte, portsRequired bool) (Table, *decoder) {
	d := newDecoder(portsRequired)
	if severalDocuments(text) {
		d.fail(errors.New("more than one YAML document; want one"))
	}
	content, err := parse(text)
	d.fail(err)
	table := d.table(content)
	d.fail(checkUniquePorts(table))
	return table, d
}

// decoder turns values of the file into those of the table.
type decoder struct {
	portsRequired bool
	err           error            // the first
	invalid       map[string]error // the first of each target that has one
}

func newDecoder(portsRequired bool) *decoder {
	return &decoder{portsRequired: portsRequired, invalid: map[string]error{}}
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// want fails with an error that says what is allowed.
func (d *decoder) want(v value, allowed string) {
	d.fail(fmt.Errorf("%s: %s; want %s", v.path, v, allowed))
}

func (d *decoder) table(v value) Table {
	targets := v.take(keyTargets)
	if targets.json == nil {
		d.want(targets, "a mapping of file system ids to targets, {} for none")
	}
	t := Table{
		Source:     d.text(v.take(keySource)),
		Retired:    d.ports(v.take(keyRetired)),
		LastUpdate: d.time(v.take(keyLastUpdate)),
		Targets:    each(d, targets, CheckTargetID, (*decoder).target),
		Unknown:    v.rest(),
	}
	d.fail(checkShape(t.Unknown, "", 0))
	return t
}

func (d *decoder) target(id string, v value) Target {
	d.fail(checkShape(v.json, v.path, 2))
	d.wantMapping(v)
	t := Target{
		Name:             d.name(v.take(keyName)),
		Port:             d.port(v.take(keyPort), d.portsRequired),
		AddressBySubnet:  each(d, v.take(keyBySubnet), checkLocation, (*decoder).address),
		AddressByZone:    each(d, v.take(keyByZone), checkLocation, (*decoder).address),
		IPv6BySubnet:     each(d, v.take(keyIPv6BySubnet), checkLocation, (*decoder).ipv6),
		IPv6ByZone:       each(d, v.take(keyIPv6ByZone), checkLocation, (*decoder).ipv6),
		DNSName:          d.match(v.take(keyDNSName), hostName, "a host name"),
		AvailabilityZone: d.match(v.take(keyZone), zoneName, "an availability zone's name"),
		NotFoundSince:    d.time(v.take(keyNotFound)),
		PinnedOnly:       d.flag(v.take(keyPinnedOnly)),
		IAM:              d.flag(v.take(keyIAM)),
		AccessPoints:     each(d, v.take(keyAccessPoints), efs.CheckAccessPointID, (*decoder).accessPoint),
		Unknown:          v.rest(),
	}
	d.fail(checkUniquePorts(Table{Targets: map[string]Target{id: t}}))
	return t
}

func (d *decoder) accessPoint(_ string, v value) AccessPoint {
	d.wantMapping(v)
	return AccessPoint{
		Port:    d.port(v.take(keyPort), d.portsRequired),
		IAM:     d.flag(v.take(keyIAM)),
		Unknown: v.rest(),
	}
}

// wantMapping also takes a missing one where all fields may be missing.
func (d *decoder) wantMapping(v value) {
	if _, ok := v.json.(map[string]any); !ok && (v.json != nil || d.portsRequired) {
		d.want(v, "a mapping")
	}
}

func (d *decoder) address(_ string, v value) netip.Addr {
	address, err := netip.ParseAddr(d.text(v))
	if err != nil || address.Zone() != "" {
		d.want(v, "an IP address")
	}
	return address
}

func (d *decoder) ipv6(_ string, v value) netip.Addr {
	address, err := netip.ParseAddr(d.text(v))
	if err != nil || !address.Is6() || address.Is4In6() || address.Zone() != "" {
		d.want(v, "an IPv6 address")
	}
	return address
}

func (d *decoder) ports(v value) []int {
	list, ok := v.json.([]any)
	if !ok && v.json != nil {
		d.want(v, "a list of ports")
	}
	var ports []int
	for i, item := range list {
		ports = append(ports, d.port(value{path: fmt.Sprintf("%s[%d]", v.path, i), json: item}, true))
	}
	return ports
}

func (d *decoder) port(v value, required bool) int {
	if v.json == nil && !required {
		return 0
	}
	number, _ := v.json.(json.Number)
	port, err := strconv.Atoi(number.String())
	if err != nil || port < 1 || port > wellknown.MaxPort {
		d.want(v, fmt.Sprintf("a port, 1 to %d", wellknown.MaxPort))
	}
	return port
}

// timeForms are ours and the original's, and what its YAML library makes of an unquoted one.
var timeForms = []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05"}

func (d *decoder) time(v value) time.Time {
	text := d.text(v)
	if text == "" {
		return time.Time{}
	}
	for _, form := range timeForms {
		// The zero time means none, and the format has four digits for the year.
		if t, err := time.Parse(form, text); err == nil && !t.IsZero() && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 {
			return t.UTC().Truncate(time.Second)
		}
	}
	d.want(v, "a time like 2026-01-02T03:04:05Z")
	return time.Time{}
}

func (d *decoder) flag(v value) bool {
	flag, ok := v.json.(bool)
	if !ok && v.json != nil {
		d.want(v, "true or false")
	}
	return flag
}

// name accepts what the original's YAML library leaves unquoted and ours takes for a number or
// a boolean: the next listing has the name as it is.
func (d *decoder) name(v value) string {
	switch v.json.(type) {
	case json.Number, bool:
		return fmt.Sprint(v.json)
	}
	return d.text(v)
}

func (d *decoder) text(v value) string {
	text, ok := v.json.(string)
	if !ok && v.json != nil {
		d.want(v, "a string")
	}
	return text
}

var (
	hostName = regexp.MustCompile(`^[0-9A-Za-z]([-.0-9A-Za-z]{0,251}[0-9A-Za-z])?$`)
	zoneName = regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?$`)
)

// match reads a string that is missing, empty or of the pattern.
func (d *decoder) match(v value, pattern *regexp.Regexp, allowed string) string {
	text, ok := v.json.(string)
	if !ok && v.json != nil || text != "" && !pattern.MatchString(text) {
		d.want(v, allowed)
	}
	return text
}

// checkLocation is for ids of subnets and names of zones, which are only compared.
func checkLocation(location string) error {
	if location == "" || strings.ContainsFunc(location, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("%.60q is no name of a subnet or zone: want one without spaces", location)
	}
	return nil
}

// checkUniquePorts refuses a table in which two tunnels would listen on one port: one of them
// would carry the other's volumes.
func checkUniquePorts(t Table) error {
	owners := map[int]Key{}
	for _, key := range t.Keys() {
		port, _ := t.Port(key)
		if owner, taken := owners[port]; taken && port != 0 {
			return fmt.Errorf("%s of %s: %d is also that of %s; want each port once", keyPort, key, port, owner)
		}
		owners[port] = key
	}
	return nil
}
