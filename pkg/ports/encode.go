package ports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
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
	keyIPv6BySubnet = "mount_target_ipv6_by_subnet"
	keyIPv6ByZone   = "mount_target_ipv6_by_zone"
	keyDNSName      = "dns_name"
	keyZone         = "availability_zone"
	keyNotFound     = "not_found_since"
	keyPinnedOnly   = "pinned_only"
	keyIAM          = "iam"
	keyAccessPoints = "access_points"
)

// Encode writes a table. Equal tables give equal bytes, and keys are sorted byte by byte: YAML
// libraries sort numbers inside ids by value, for which some ids have no order.
func Encode(t Table) []byte {
	var b bytes.Buffer
	writeMap(&b, t.fields(), "")
	return b.Bytes()
}

func (t Table) fields() map[string]any {
	var retired []any // the only list type of writeValue
	for _, port := range t.Retired {
		retired = append(retired, port)
	}
	fields := nonZero(map[string]any{
		keySource:     t.Source,
		keyRetired:    retired,
		keyLastUpdate: timeText(t.LastUpdate),
	})
	fields[keyTargets] = convert(t.Targets, Target.fields)
	return over(t.Unknown, fields)
}

// fields has those of the original system even when they are empty, because it expects them.
func (t Target) fields() map[string]any {
	fields := nonZero(map[string]any{
		keyPort:         t.Port,
		keyByZone:       convert(t.AddressByZone, netip.Addr.String),
		keyIPv6BySubnet: convert(t.IPv6BySubnet, netip.Addr.String),
		keyIPv6ByZone:   convert(t.IPv6ByZone, netip.Addr.String),
		keyDNSName:      t.DNSName,
		keyZone:         t.AvailabilityZone,
		keyNotFound:     timeText(t.NotFoundSince),
		keyPinnedOnly:   t.PinnedOnly,
		keyIAM:          t.IAM,
		keyAccessPoints: convert(t.AccessPoints, AccessPoint.fields),
	})
	fields[keyName] = t.Name
	fields[keyBySubnet] = convert(t.AddressBySubnet, netip.Addr.String)
	return over(t.Unknown, fields)
}

func (p AccessPoint) fields() map[string]any {
	return over(p.Unknown, nonZero(map[string]any{keyPort: p.Port, keyIAM: p.IAM}))
}

// nonZero removes the fields that are zero.
func nonZero(fields map[string]any) map[string]any {
	maps.DeleteFunc(fields, func(_ string, field any) bool { return reflect.ValueOf(field).IsZero() })
	return fields
}

// convert returns nil for an empty map.
func convert[V, W any](values map[string]V, to func(V) W) map[string]any {
	if len(values) == 0 {
		return nil
	}
	converted := make(map[string]any, len(values))
	for key, v := range values {
		converted[key] = to(v)
	}
	return converted
}

// verbatim is written as it is.
type verbatim string

// timeText is written as a string, as the original system does: an unquoted one would come
// back from it in another form.
func timeText(t time.Time) verbatim {
	if t.IsZero() {
		return ""
	}
	return verbatim(t.UTC().Format(`"` + time.RFC3339 + `"`))
}

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
	case string:
		b.WriteString(" " + scalar(v) + "\n")
	case nil:
		b.WriteString(" null\n")
	default:
		b.WriteString(" " + fmt.Sprint(v) + "\n")
	}
}

// scalar leaves quoting to the YAML library, except for what it would not give back as it was,
// for what does not fit on one line, and for two strings that it leaves bare though readers,
// the original system's among them, take them for something else.
func scalar(text string) string {
	if isPlain(text) {
		return text
	}
	if strings.ContainsFunc(text, unprintable) || text == "<<" || text == "=" {
		return quoted(text)
	}
	encoded, err := yaml.Marshal(text)
	line, more, _ := strings.Cut(string(encoded), "\n")
	if err != nil || more != "" {
		return quoted(text)
	}
	return line
}

// isPlain reports whether a string is one of those that make up a table and that the library never
// quotes: asking it takes much longer. They begin with a letter and are longer than any word for a
// boolean or null, and shorter than a line that the library would break; or they are addresses. Those of
// IPv6 without a letter look like numbers of base 60.
func isPlain(text string) bool {
	const inWords = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./ "
	if len(text) > len("false") && ('a' <= text[0] && text[0] <= 'z' || 'A' <= text[0] && text[0] <= 'Z') {
		return len(text) <= 72 && strings.Trim(text, inWords) == "" && text[len(text)-1] != ' '
	}
	address, err := netip.ParseAddr(text)
	if err == nil && address.Is6() {
		return strings.ContainsAny(text, "abcdef") && address.Zone() == "" && strings.Trim(text, ":") == text
	}
	return err == nil || text == keyName || text == keyIAM
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// quoted is the string in JSON, which YAML understands, with more characters escaped.
func quoted(text string) string {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // cannot fail for a string
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
