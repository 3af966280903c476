package ports_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

func TestParseEphemeral(t *testing.T) {
	tests := map[string]struct {
		portRange, reserved string
		want                ports.Ephemeral
	}{
		"the kernel's default": {"32768\t60999\n", "\n", ports.Ephemeral{Range: ports.Span{First: 32768, Last: 60999}}},
		"single ports and spans": {"1024\t65535\n", "8080,9148,20490-21489\n", ports.Ephemeral{
			Range:    ports.Span{First: 1024, Last: 65535},
			Reserved: []ports.Span{{First: 8080, Last: 8080}, {First: 9148, Last: 9148}, {First: 20490, Last: 21489}},
		}},
		"port 0": {"0 65535", "0,0-5", ports.Ephemeral{
			Range: ports.Span{First: 1, Last: 65535}, Reserved: []ports.Span{{First: 1, Last: 0}, {First: 1, Last: 5}},
		}},
		"one port": {"40000 40000", "", ports.Ephemeral{Range: ports.Span{First: 40000, Last: 40000}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ports.ParseEphemeral(tt.portRange, tt.reserved)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ports mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseErrorsNameSetting(t *testing.T) {
	const wantPorts = "want ports up to 65535, the lower one first"
	tests := map[string]struct {
		portRange, reserved string
		want                string
	}{
		"empty":                        {"", "", `ip_local_port_range is "": want two ports`},
		"one port":                     {"32768\n", "", `ip_local_port_range is "32768\n": want two ports`},
		"not numbers":                  {"from to", "", `ip_local_port_range is "from to": ` + wantPorts},
		"wrong order":                  {"60999 32768", "", `ip_local_port_range is "60999 32768": ` + wantPorts},
		"too high":                     {"1 65536", "", `ip_local_port_range is "1 65536": ` + wantPorts},
		"negative":                     {"-1 5", "", `ip_local_port_range is "-1 5": ` + wantPorts},
		"reserved name":                {"1 5", "http", `ip_local_reserved_ports has "http": ` + wantPorts},
		"reserved span without end":    {"1 5", "5-", `ip_local_reserved_ports has "5-": ` + wantPorts},
		"reserved span in wrong order": {"1 5", "3,5-4", `ip_local_reserved_ports has "5-4": ` + wantPorts},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := ports.ParseEphemeral(tt.portRange, tt.reserved); err == nil || err.Error() != tt.want {
				t.Errorf("got %v, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestContains(t *testing.T) {
	parsed, err := ports.ParseEphemeral("20000 30000", "20490-21489,25000")
	if err != nil {
		t.Fatal(err)
	}
	for port, want := range map[int]bool{
		0: false, 19999: false, 20000: true, 20489: true, 20490: false, 21489: false, 21490: true,
		24999: true, 25000: false, 25001: true, 30000: true, 30001: false,
	} {
		if got := parsed.Contains(port); got != want {
			t.Errorf("port %d: got %t, want %t", port, got, want)
		}
	}
	if (ports.Ephemeral{}).Contains(0) || (ports.Ephemeral{}).Contains(20490) {
		t.Error("the zero Ports contains a port")
	}
}
