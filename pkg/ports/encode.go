package ports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"sigs.k8s.io/yaml"
)

// Keys of the format.
const (
	keyTargets      = "efs_stunnel_targets"
	keySource       = "account_and_region"
	keyRetired      = "retired_ports"
	keyLastUpdate   = "last_update"
	keyName         = "name"
	keyPort         = "stunnel_port"
	keyBySubnet     = "mount_target_ip_by_subnet"
	keyByZone       = "mount_target_ip_by_zone"
	keyDNSName      = "dns_name"
	keyZone         = "availability_zone"
	keyNotFound     = "not_found_since"
	keyPinnedOnly   = "pinned_only"
	keyIAM          = "iam"
	keyAccessPoints = "access_points"
)

// Encode writes a table. Equal tables give equal bytes, and keys are sorted byte by byte: the
// YAML library sorts numbers inside ids by value, for which some ids have no order.
func Encode(t Table) []byte {
	var b bytes.Buffer
	writeMap(&b, t.fields(), "")
	return b.Bytes()
}

func (t Table) fields() map[string]any {
	targets := make(map[string]any, len(t.Targets))
	for id, target := range t.Targets {
		targets[id] = target.fields()
	}
	fields := known(t.Unknown)
	fields[keyTargets] = targets
	fields.set(keySource, t.Source, t.Source != "")
	fields.set(keyRetired, portList(t.Retired), len(t.Retired) > 0)
	fields.set(keyLastUpdate, timeText(t.LastUpdate), !t.LastUpdate.IsZero())
	return fields
}

// fields are the target as a YAML mapping. Those of the original system are always there,
// because it does not expect them to be missing.
func (t Target) fields() map[string]any {
	fields := known(t.Unknown)
	fields[keyName] = t.Name
	fields.set(keyPort, t.Port, t.Port != 0)
	fields[keyBySubnet] = addressTexts(t.AddressBySubnet)
	fields.set(keyByZone, addressTexts(t.AddressByZone), len(t.AddressByZone) > 0)
	fields.set(keyDNSName, t.DNSName, t.DNSName != "")
	fields.set(keyZone, t.AvailabilityZone, t.AvailabilityZone != "")
	fields.set(keyNotFound, timeText(t.NotFoundSince), !t.NotFoundSince.IsZero())
	fields.set(keyPinnedOnly, t.PinnedOnly, t.PinnedOnly)
	fields.set(keyIAM, t.IAM, t.IAM)
	fields.set(keyAccessPoints, accessPointFields(t.AccessPoints), len(t.AccessPoints) > 0)
	return fields
}

func accessPointFields(points map[string]AccessPoint) map[string]any {
	all := make(map[string]any, len(points))
	for id, point := range points {
		fields := known(point.Unknown)
		fields.set(keyPort, point.Port, point.Port != 0)
		fields.set(keyIAM, point.IAM, point.IAM)
		all[id] = map[string]any(fields)
	}
	return all
}

type mapping map[string]any

// known starts a mapping with what others put there; our own keys come over it.
func known(unknown map[string]any) mapping {
	if unknown == nil {
		return mapping{}
	}
	return maps.Clone(unknown)
}

func (m mapping) set(key string, value any, there bool) {
	if there {
		m[key] = value
	}
}

func addressTexts(addresses map[string]netip.Addr) map[string]any {
	texts := make(map[string]any, len(addresses))
	for place, address := range addresses {
		texts[place] = address.String()
	}
	return texts
}

func portList(ports []int) []any {
	list := make([]any, len(ports))
	for i, port := range ports {
		list[i] = port
	}
	return list
}

// timeText is written as a string, as the original system does: an unquoted one would come
// back from it in another form.
func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func writeMap(b *bytes.Buffer, m map[string]any, indent string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		b.WriteString(indent + scalar(key) + ":")
		writeValue(b, m[key], indent+"  ")
	}
}

func writeValue(b *bytes.Buffer, value any, indent string) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			b.WriteString(" {}\n")
			return
		}
		b.WriteString("\n")
		writeMap(b, v, indent)
	case []any:
		if len(v) == 0 {
			b.WriteString(" []\n")
			return
		}
		b.WriteString("\n")
		for _, item := range v {
			b.WriteString(indent + "-")
			writeValue(b, item, indent+"  ")
		}
	default:
		b.WriteString(" " + scalar(v) + "\n")
	}
}

// scalar leaves quoting to the YAML library, except for what it would not give back as it was,
// for what does not fit on one line, and for two strings that it leaves bare though readers,
// the original system's among them, take them for something else.
func scalar(value any) string {
	if value == nil {
		return "null"
	}
	text, isText := value.(string)
	if !isText {
		return fmt.Sprint(value)
	}
	encoded, err := yaml.Marshal(text)
	line, more, _ := strings.Cut(string(encoded), "\n")
	if err != nil || more != "" || strings.ContainsFunc(text, unprintable) || text == "<<" || text == "=" {
		return quoted(text)
	}
	return line
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// quoted is the string in JSON, which YAML understands, with more characters escaped.
func quoted(text string) string {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return `""` // no string has this error
	}
	var b strings.Builder
	for _, r := range strings.TrimSuffix(encoded.String(), "\n") {
		if r <= 0xffff && unprintable(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
