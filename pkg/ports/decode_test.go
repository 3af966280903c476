package ports_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

var compareTables = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})}

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		text string
		want ports.Table
	}{
		"what the original system wrote": {
			text: `
efs_stunnel_targets:
  fs-34a3p3:
    mount_target_ip_by_subnet: {subnet-ao4u3pai: 10.0.0.4, subnet-b4oup3be: 10.0.1.4}
    name: shared
    stunnel_port: 20490
last_update: '2026-01-02T12:00:00Z'
`,
			want: ports.Table{
				Targets: map[string]ports.Target{"fs-34a3p3": {
					Name: "shared", Port: 20490,
					AddressBySubnet: addresses("subnet-ao4u3pai", "10.0.0.4", "subnet-b4oup3be", "10.0.1.4"),
				}},
				LastUpdate: noon,
			},
		},
		"what its documentation shows": {
			text: "efs_stunnel_targets:\n  fs-1:\n    stunnel_port: 20490\n",
			want: ports.Table{Targets: map[string]ports.Target{"fs-1": {Port: 20490}}},
		},
		"times in every form that its YAML library writes": {
			text: `
efs_stunnel_targets:
  fs-1: {stunnel_port: 1, not_found_since: 2026-01-02 12:00:00+00:00}
  fs-2: {stunnel_port: 2, not_found_since: 2026-01-02 12:00:00}
  fs-3: {stunnel_port: 3, not_found_since: 2026-01-02T13:00:00.9+01:00}
last_update: 2026-01-02T12:00:00Z
`,
			want: ports.Table{
				Targets: map[string]ports.Target{
					"fs-1": {Port: 1, NotFoundSince: noon},
					"fs-2": {Port: 2, NotFoundSince: noon},
					"fs-3": {Port: 3, NotFoundSince: noon},
				},
				LastUpdate: noon,
			},
		},
		"names that its YAML library leaves unquoted": {
			text: "efs_stunnel_targets: {fs-1: {name: 1e+3, stunnel_port: 1}, fs-2: {name: y, stunnel_port: 2}}",
			want: ports.Table{Targets: map[string]ports.Target{
				"fs-1": {Name: "1000", Port: 1},
				"fs-2": {Name: "y", Port: 2},
			}},
		},
		"our own additions": {
			text: `
efs_stunnel_targets:
  nas-1:
    name: null
    stunnel_port: 20490
    mount_target_ip_by_zone: {us-east-1a: fd00::4}
    mount_target_ipv6_by_subnet: {subnet-1: fd00::5}
    mount_target_ipv6_by_zone: {us-east-1b: fd00::5}
    dns_name: nas.example.com
    availability_zone: us-east-1a
    iam: true
    lanes: 5
    access_points: {fsap-1: {stunnel_port: 20510, iam: true}}
retired_ports: [20493]
`,
			want: ports.Table{
				Targets: map[string]ports.Target{"nas-1": {
					Port: 20490, AddressByZone: addresses("us-east-1a", "fd00::4"),
					IPv6BySubnet: addresses("subnet-1", "fd00::5"), IPv6ByZone: addresses("us-east-1b", "fd00::5"),
					DNSName: "nas.example.com", AvailabilityZone: "us-east-1a", IAM: true, Lanes: 5,
					AccessPoints: map[string]ports.AccessPoint{"fsap-1": {Port: 20510, IAM: true}},
				}},
				Retired: []int{20493},
			},
		},
		"unknown keys at every level": {
			text: `
efs_stunnel_targets:
  fs-1:
    stunnel_port: 20490
    not_found: true
    access_points: {fsap-1: {stunnel_port: 20510, owner: 12345678901234567890}}
schema: {version: [1, two, null]}
`,
			want: ports.Table{
				Targets: map[string]ports.Target{"fs-1": {
					Port: 20490, Unknown: unknown(map[string]any{"not_found": true}),
					AccessPoints: map[string]ports.AccessPoint{"fsap-1": {
						Port: 20510, Unknown: unknown(map[string]any{"owner": uint64(12345678901234567890)}),
					}},
				}},
				Unknown: unknown(map[string]any{"schema": map[string]any{"version": []any{1, "two", nil}}}),
			},
		},
		"aliases, merges, and truth in the words of YAML 1.1": {
			text: "base: &base {stunnel_port: 1, iam: yes}\nefs_stunnel_targets: {fs-1: {<<: *base, pinned_only: Off}}",
			want: ports.Table{
				Targets: map[string]ports.Target{"fs-1": {Port: 1, IAM: true}},
				Unknown: unknown(map[string]any{"base": map[string]any{"stunnel_port": 1, "iam": "yes"}}),
			},
		},
		"no targets, said plainly": {text: "---\n# none yet\nefs_stunnel_targets: {}\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ports.Decode([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, compareTables); diff != "" {
				t.Errorf("table mismatch (-want +got):\n%s", diff)
			}
			again, err := ports.Decode(ports.Encode(got))
			if diff := cmp.Diff(got, again, compareTables); diff != "" || err != nil {
				t.Errorf("after encoding: %v\n%s", err, diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	target := func(fields string) string { return "efs_stunnel_targets: {fs-1: {" + fields + "}}" }
	tests := map[string]struct {
		text string
		err  string
	}{
		"an empty file":          {"", "the file is empty; want a mapping with efs_stunnel_targets"},
		"a file of comments":     {"# nothing\n", "the file is empty; want a mapping with efs_stunnel_targets"},
		"a list":                 {"[1]", "[1]; want a mapping with efs_stunnel_targets"},
		"broken YAML":            {"a: [", "parsing YAML: yaml: line 1: did not find expected node content"},
		"a misspelt main key":    {"efs_stunel_targets: {}", "efs_stunnel_targets: missing; want a mapping of file system ids to targets, {} for none"},
		"an empty main key":      {"efs_stunnel_targets:", "efs_stunnel_targets: missing; want a mapping of file system ids to targets, {} for none"},
		"a second document":      {"efs_stunnel_targets: {}\n---\nefs_stunnel_targets: {}", "more than one YAML document; want one"},
		"a file system twice":    {"efs_stunnel_targets: {fs-1: {stunnel_port: 1}, fs-1: {stunnel_port: 2}}", `parsing YAML: yaml: unmarshal errors:` + "\n" + `  line 1: mapping key "fs-1" already defined at line 1`},
		"an id that is a path":   {`efs_stunnel_targets: {"../etc": {}}`, `efs_stunnel_targets: "../etc" is no target id: want 1 to 43 lower-case letters, digits or dashes, a letter first and no dash last`},
		"an empty target":        {"efs_stunnel_targets: {fs-1: }", "efs_stunnel_targets.fs-1: missing; want a mapping"},
		"no port":                {target("name: x"), "efs_stunnel_targets.fs-1.stunnel_port: missing; want a port, 1 to 65535"},
		"a port in quotes":       {target("stunnel_port: '1'"), `efs_stunnel_targets.fs-1.stunnel_port: "1"; want a port, 1 to 65535`},
		"a port out of range":    {target("stunnel_port: 65536"), "efs_stunnel_targets.fs-1.stunnel_port: 65536; want a port, 1 to 65535"},
		"a port with a fraction": {target("stunnel_port: 1.5"), "efs_stunnel_targets.fs-1.stunnel_port: 1.5; want a port, 1 to 65535"},
		"a name that is a list":  {target("stunnel_port: 1, name: [a]"), `efs_stunnel_targets.fs-1.name: ["a"]; want a string`},
		"no address": {
			target("stunnel_port: 1, mount_target_ip_by_subnet: {subnet-1: here}"),
			`efs_stunnel_targets.fs-1.mount_target_ip_by_subnet.subnet-1: "here"; want an IP address`,
		},
		"an address with a zone": {
			target("stunnel_port: 1, mount_target_ip_by_zone: {a: fe80::1%eth0}"),
			`efs_stunnel_targets.fs-1.mount_target_ip_by_zone.a: "fe80::1%eth0"; want an IP address`,
		},
		"an address of the other family": {
			target("stunnel_port: 1, mount_target_ipv6_by_zone: {a: 10.0.0.4}"),
			`efs_stunnel_targets.fs-1.mount_target_ipv6_by_zone.a: "10.0.0.4"; want an IPv6 address`,
		},
		"an address of the other family in disguise": {
			target(`stunnel_port: 1, mount_target_ipv6_by_subnet: {a: "::ffff:10.0.0.4"}`),
			`efs_stunnel_targets.fs-1.mount_target_ipv6_by_subnet.a: "::ffff:10.0.0.4"; want an IPv6 address`,
		},
		"an IPv6 address with a zone": {
			target("stunnel_port: 1, mount_target_ipv6_by_subnet: {a: fe80::1%eth0}"),
			`efs_stunnel_targets.fs-1.mount_target_ipv6_by_subnet.a: "fe80::1%eth0"; want an IPv6 address`,
		},
		"an IPv6 address that is a number": {
			target("stunnel_port: 1, mount_target_ipv6_by_zone: {a: 1}"),
			`efs_stunnel_targets.fs-1.mount_target_ipv6_by_zone.a: 1; want an IPv6 address`,
		},
		"a host name with a line break": {
			target(`stunnel_port: 1, dns_name: "a\ncert = x"`),
			`efs_stunnel_targets.fs-1.dns_name: "a\ncert = x"; want a host name`,
		},
		"a zone with spaces": {
			target("stunnel_port: 1, availability_zone: a b"),
			`efs_stunnel_targets.fs-1.availability_zone: "a b"; want an availability zone's name`,
		},
		"six lanes":   {target("stunnel_port: 1, lanes: 6"), "efs_stunnel_targets.fs-1.lanes: 6; want a number of connections, 1 to 5"},
		"no truth":    {target("stunnel_port: 1, iam: maybe"), `efs_stunnel_targets.fs-1.iam: "maybe"; want true or false`},
		"no time":     {target("stunnel_port: 1, not_found_since: now"), `efs_stunnel_targets.fs-1.not_found_since: "now"; want a time like 2026-01-02T03:04:05Z`},
		"no list":     {"efs_stunnel_targets: {}\nretired_ports: 1", "retired_ports: 1; want a list of ports"},
		"a null port": {"efs_stunnel_targets: {}\nretired_ports: [1, ~]", "retired_ports[1]: missing; want a port, 1 to 65535"},
		"an access point's port that is a file system's": {
			target("stunnel_port: 7, access_points: {fsap-1: {stunnel_port: 7}}"),
			"stunnel_port of fs-1/fsap-1: 7 is also that of fs-1; want each port once",
		},
		"an access point by another name": {
			target("stunnel_port: 7, access_points: {home: {stunnel_port: 8}}"),
			`efs_stunnel_targets.fs-1.access_points: "home" is no access point id: want fsap- and 1 to 40 lower-case letters or digits`,
		},
		"bad values in a merge":             {"b: &b {dns_name: 'a b'}\nefs_stunnel_targets: {fs-1: {<<: *b, stunnel_port: 1}}", `efs_stunnel_targets.fs-1.dns_name: "a b"; want a host name`},
		"keys that are the same as strings": {"efs_stunnel_targets: {}\nx: {1: a, '1': b}", `parsing YAML: yaml: unmarshal errors:` + "\n" + `  line 2: mapping key "1" already defined at line 2`},
		"keys that become the same":         {"efs_stunnel_targets: {}\nx: {1.0: a, '1': b}", `x: key "1" occurs twice`},
		"what could not be written again": {
			"efs_stunnel_targets: {}\nx: " + strings.Repeat("[", 40) + strings.Repeat("]", 40),
			"x" + strings.Repeat("[0]", 32) + ": nested too deeply; want at most 32 levels",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ports.Decode([]byte(tt.text))
			if err == nil || err.Error() != tt.err {
				t.Errorf("got  %v\nwant %s", err, tt.err)
			}
		})
	}
}

func TestDecodePinned(t *testing.T) {
	text := []byte("efs_stunnel_targets: {nas-1: {dns_name: nas.example.com, access_points: {fsap-1: }}, nas-2: }")
	want := ports.Table{Targets: map[string]ports.Target{
		"nas-1": {DNSName: "nas.example.com", AccessPoints: map[string]ports.AccessPoint{"fsap-1": {}}},
		"nas-2": {},
	}}
	got, err := ports.DecodePinned(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, compareTables); diff != "" {
		t.Errorf("table mismatch (-want +got):\n%s", diff)
	}
	if _, err := ports.DecodePinned([]byte("efs_stunnel_targets: {nas-1: {stunnel_port: 0}}")); err == nil {
		t.Error("a port that is none is accepted")
	}
}

// Whatever is read is written so that it reads the same, and writing it again changes nothing.
func FuzzCodec(f *testing.F) {
	f.Add([]byte("efs_stunnel_targets: {fs-1: {stunnel_port: 20490, name: 'a b', other: [1, {x: y}]}}\nlast_update: 2026-01-02T12:00:00Z"))
	f.Add([]byte("efs_stunnel_targets: {}\nretired_ports: [1, 2]\n\"<<\": {a: !!binary aGk=}\n? [x]\n: y"))
	f.Add([]byte("efs_stunnel_targets: {fs-1: {stunnel_port: 1, access_points: {fsap-1: {stunnel_port: 2, z: 1e400}}}}"))
	f.Add([]byte("a: \"\\x7f\\ufeff\\u0085\"\n'': |\n  text\n\n  more\nefs_stunnel_targets: {}\nb: -.inf\nc: 0x1F\nd: 1_000"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := ports.Decode(text)
		if err != nil {
			return
		}
		encoded := ports.Encode(table)
		again, err := ports.Decode(encoded)
		if err != nil {
			t.Fatalf("%v in what was encoded:\n%s", err, encoded)
		}
		if diff := cmp.Diff(table, again, compareTables); diff != "" {
			t.Errorf("table mismatch (-first +second):\n%s", diff)
		}
		if second := ports.Encode(again); !bytes.Equal(encoded, second) {
			t.Errorf("encoded again:\n%s\nwant:\n%s", second, encoded)
		}
	})
}
