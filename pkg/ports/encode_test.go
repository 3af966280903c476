package ports_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func addresses(pairs ...string) map[string]netip.Addr {
	all := map[string]netip.Addr{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = netip.MustParseAddr(pairs[i+1])
	}
	return all
}

// unknown returns fields as they are decoded.
func unknown(fields map[string]any) map[string]yaml.Node {
	fields["efs_stunnel_targets"] = map[string]any{}
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	table, err := ports.Decode(text)
	if err != nil {
		panic(err)
	}
	return table.Unknown
}

func TestEncode(t *testing.T) {
	tests := map[string]struct {
		table ports.Table
		want  string
	}{
		"an empty table says so": {
			want: "efs_stunnel_targets: {}\n",
		},
		"every key we know": {
			table: ports.Table{
				Targets: map[string]ports.Target{"fs-34a3p3": {
					Name: "shared", Port: 20490,
					AddressBySubnet:   addresses("subnet-b4oup3be", "10.0.1.4", "subnet-ao4u3pai", "10.0.0.4"),
					AddressByZone:     addresses("us-east-1a", "10.0.0.4"),
					IPv6BySubnet:      addresses("subnet-ao4u3pai", "fd00::4", "subnet-c", "2001:10:20:30:40:50:10:20"),
					IPv6ByZone:        addresses("us-east-1a", "fd00::4"),
					DNSName:           "fs-34a3p3.efs.us-east-1.amazonaws.com",
					AvailabilityZone:  "us-east-1a",
					NotFoundSince:     noon,
					PinnedOnly:        true,
					IAM:               true,
					Lanes:             3,
					ClientCertificate: true,
					AccessPoints:      map[string]ports.AccessPoint{"fsap-0123456789abcdef0": {Port: 20510, IAM: true}},
				}},
				Source:     "123456789012/us-east-1",
				Retired:    []int{20493, 20491},
				LastUpdate: noon.In(time.FixedZone("elsewhere", 3600)),
			},
			want: `
account_and_region: 123456789012/us-east-1
efs_stunnel_targets:
  fs-34a3p3:
    access_points:
      fsap-0123456789abcdef0:
        iam: true
        stunnel_port: 20510
    availability_zone: us-east-1a
    client_certificate: true
    dns_name: fs-34a3p3.efs.us-east-1.amazonaws.com
    iam: true
    lanes: 3
    mount_target_ip_by_subnet:
      subnet-ao4u3pai: 10.0.0.4
      subnet-b4oup3be: 10.0.1.4
    mount_target_ip_by_zone:
      us-east-1a: 10.0.0.4
    mount_target_ipv6_by_subnet:
      subnet-ao4u3pai: fd00::4
      subnet-c: "2001:10:20:30:40:50:10:20"
    mount_target_ipv6_by_zone:
      us-east-1a: fd00::4
    name: shared
    not_found_since: "2026-01-02T12:00:00Z"
    pinned_only: true
    stunnel_port: 20490
last_update: "2026-01-02T12:00:00Z"
retired_ports:
  - 20493
  - 20491
`,
		},
		"the original's keys are there even when empty": {
			table: ports.Table{Targets: map[string]ports.Target{"fs-1": {Port: 20490}}},
			want: `
efs_stunnel_targets:
  fs-1:
    mount_target_ip_by_subnet: {}
    name: ""
    stunnel_port: 20490
`,
		},
		"names that YAML takes for something else are quoted": {
			table: ports.Table{
				Targets: map[string]ports.Target{
					"no":   {Name: "20490", Port: 1},
					"null": {Name: "a: b # c\n- d", Port: 2},
					"w":    {Name: "=", Port: 5},
					"x":    {Name: "\x7f\ufeff\u2028é", Port: 3},
					"y":    {Name: "12:30", Port: 4},
				},
				Unknown: unknown(map[string]any{"<<": nil, "": []any{true, 1e3, []any{}, []any{map[string]any{}}}}),
			},
			want: `
"":
  - true
  - 1000
  - []
  - - {}
"<<": null
efs_stunnel_targets:
  "no":
    mount_target_ip_by_subnet: {}
    name: "20490"
    stunnel_port: 1
  "null":
    mount_target_ip_by_subnet: {}
    name: "a: b # c\n- d"
    stunnel_port: 2
  w:
    mount_target_ip_by_subnet: {}
    name: "="
    stunnel_port: 5
  x:
    mount_target_ip_by_subnet: {}
    name: "\x7F\uFEFF\Lé"
    stunnel_port: 3
  "y":
    mount_target_ip_by_subnet: {}
    name: "12:30"
    stunnel_port: 4
`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := string(ports.Encode(tt.table))
			if want := strings.TrimPrefix(tt.want, "\n"); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// Digits and letters mixed, as in real ids, have no order in the YAML library's own sorting.
func TestEncodeIsStable(t *testing.T) {
	table, others := ports.Table{Targets: map[string]ports.Target{}}, map[string]any{}
	for i := range 60 {
		id := fmt.Sprintf("fs-%x", i*i*7)
		table.Targets[id] = ports.Target{Port: 20490 + i}
		others[id] = map[string]any{id: id, "fs-1a": 1, "fs-12": 2, "fs-2": 3}
	}
	table.Unknown = unknown(others)
	first := string(ports.Encode(table))
	for range 10 {
		if string(ports.Encode(table.Clone())) != first {
			t.Fatal("the same table gave other bytes")
		}
	}
}

// Any name that a tag can have comes back as it was, so that it is written once.
func TestNamesSurvive(t *testing.T) {
	table := ports.Table{Targets: map[string]ports.Target{}}
	port := 0
	add := func(name string) {
		port++
		table.Targets[fmt.Sprintf("fs-%d", port)] = ports.Target{Name: name, Port: port}
	}
	for r := range rune(0x180) {
		add(string(r))
		add("a" + string(r) + " b")
	}
	for _, name := range []string{
		"\u2028", "\u2029", "\ufeff", "\ufffe", "\uffff", "\U0001f600", " a", "a ", "a\n", "- a", "? a", "a: b", "a #b", "a:",
		"~", "null", "yes", "Off", "1", "-1.5", ".inf", "0x1f", "1:30", "2026-01-02", "2026-01-02T03:04:05Z", "<<", "=",
		"!tag", "&anchor", "*alias", "%x", "@x", "`x", "---", "...", "'", "\"", "\\", strings.Repeat("long ", 100),
	} {
		add(name)
	}
	got, err := ports.Decode(ports.Encode(table))
	if diff := cmp.Diff(table, got, compareTables); diff != "" || err != nil {
		t.Errorf("%v\nnames changed (-before +after):\n%s", err, diff)
	}
}
