package vpcdns

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory/inventorytest"
)

func newServer(t *testing.T) *Server {
	t.Helper()
	store := inventorytest.New(t, "10.90",
		inventory.Node{Name: "a", Address: "10.90.1.11", PodCIDR: "10.91.1.0/24", MAC: "52:54:00:00:00:01", Zone: "us-east-1a"},
		inventory.Node{Name: "b", Address: "127.0.0.1", MAC: "52:54:00:00:00:02", Zone: "us-east-1b"},
	)
	return &Server{Options{
		Inventory: store, Region: "us-east-1", APIAddresses: []string{"10.90.0.1", "fd00:90::1"},
		Hosts: map[string][]string{"registry.lab": {"10.90.0.1"}},
		Log:   slog.New(slog.DiscardHandler),
	}}
}

func TestNamesResolveAsInAVPC(t *testing.T) {
	s := newServer(t)
	if err := s.Inventory.SetMountTargetState("fsmt-0123456789abcde10", inventory.Creating); err != nil {
		t.Fatal(err)
	}
	dual, err := s.Inventory.CreateFileSystem(inventory.NewFileSystem{Name: "dual"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Inventory.CreateMountTarget(inventory.NewMountTarget{FileSystemID: dual.ID, Zone: "us-east-1a", AddressType: inventory.DualStack})
	if err != nil {
		t.Fatal(err)
	}
	const domain = ".efs.us-east-1.amazonaws.com"
	tests := map[string]struct{ client, name, want string }{
		"own zone":                   {"10.90.1.11", "fs-0123456789abcdef0" + domain, "10.90.1.200"},
		"a pod's zone":               {"10.91.1.5", "fs-0123456789abcdef0" + domain, "10.90.1.200"},
		"other zone":                 {"127.0.0.1", "fs-0123456789abcdef0" + domain, "10.90.2.200"},
		"named zone":                 {"10.90.1.11", "us-east-1b.fs-0123456789abcdef0" + domain, "10.90.2.200"},
		"no available one in zone":   {"10.90.1.11", "fs-0123456789abcdef1" + domain, ""},
		"address of no node":         {"10.90.9.9", "fs-0123456789abcdef0" + domain, ""},
		"unknown file system":        {"10.90.1.11", "fs-1" + domain, ""},
		"other region":               {"10.90.1.11", "fs-0123456789abcdef0.efs.eu-west-1.amazonaws.com", ""},
		"addresses of both families": {"10.90.1.11", dual.ID + domain, "10.90.1.202 fd00:90:0:1::ca"},
		"api":                        {"10.90.1.11", "elasticfilesystem.us-east-1.amazonaws.com", "10.90.0.1 fd00:90::1"},
		"host":                       {"10.90.9.9", "registry.lab", "10.90.0.1"},
		"a name outside AWS":         {"10.90.1.11", "example.com", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			addresses, ok := s.resolve(tt.name, netip.MustParseAddr(tt.client))
			var texts []string
			for _, address := range addresses {
				texts = append(texts, address.String())
			}
			got := strings.Join(texts, " ")
			if ok != (tt.want != "") {
				t.Errorf("found: %v", ok)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("address (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAddressesAreAnsweredByTheirTypes(t *testing.T) {
	s := newServer(t)
	s.Hosts["both.lab"] = []string{"fd00:90::1"}
	for kind, want := range map[uint16]int{dns.TypeA: 0, dns.TypeAAAA: 1, dns.TypeANY: 1} {
		answer := new(dns.Msg)
		s.answer(answer, dns.Question{Name: "both.lab.", Qtype: kind}, netip.MustParseAddr("10.90.1.11"))
		if len(answer.Answer) != want || answer.Rcode != dns.RcodeSuccess {
			t.Errorf("type %d: %v", kind, answer)
		}
	}
}

func TestQueriesAreAnsweredOverUDPAndTCP(t *testing.T) {
	s := newServer(t)
	packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, packets, listener) }()
	ask := func(network, address, name string, kind uint16) *dns.Msg {
		t.Helper()
		answer, _, err := (&dns.Client{Net: network, Timeout: time.Minute}).ExchangeContext(ctx, new(dns.Msg).SetQuestion(name, kind), address)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	const name = "FS-0123456789abcdef0.efs.us-east-1.amazonaws.com."
	for network, address := range map[string]string{"udp": packets.LocalAddr().String(), "tcp": listener.Addr().String()} {
		answer := ask(network, address, name, dns.TypeA)
		if a, ok := answer.Answer[0].(*dns.A); !ok || a.A.String() != "10.90.2.200" {
			t.Errorf("over %s: %v", network, answer)
		}
		if none := ask(network, address, "example.com.", dns.TypeA); none.Rcode != dns.RcodeNameError {
			t.Errorf("over %s: %v, want NXDOMAIN", network, none)
		}
		if empty := ask(network, address, name, dns.TypeAAAA); empty.Rcode != dns.RcodeSuccess || len(empty.Answer) != 0 {
			t.Errorf("over %s: %v, want no address and no error", network, empty)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}
