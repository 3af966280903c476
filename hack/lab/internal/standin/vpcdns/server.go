// Package vpcdns resolves the names of EFS as the resolver of a VPC does, and those of the lab's own
// hosts. All other names do not exist.
package vpcdns

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

const ttl = 5 // seconds: faults must be visible soon

// Options are the settings of a server.
type Options struct {
	Inventory    *inventory.Store
	Region       string
	APIAddresses []string            // IP addresses of the EFS API
	Hosts        map[string][]string // more names and their IP addresses
	Log          *slog.Logger
}

// Server answers over UDP and TCP.
type Server struct{ Options }

// Serve answers on an address until the context ends.
func (s *Server) Serve(ctx context.Context, address string) error {
	var config net.ListenConfig
	packets, err := config.ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("listening for DNS: %w", err)
	}
	// The same port, also when the address has port 0.
	listener, err := config.Listen(ctx, "tcp", packets.LocalAddr().String())
	if err != nil {
		_ = packets.Close()
		return fmt.Errorf("listening for DNS: %w", err)
	}
	return s.serve(ctx, packets, listener)
}

func (s *Server) serve(ctx context.Context, packets net.PacketConn, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, server := range []*dns.Server{{PacketConn: packets, Handler: s}, {Listener: listener, Handler: s}} {
		group.Go(func() error {
			// Closing the socket also ends a server that has not started yet.
			stop := context.AfterFunc(ctx, func() {
				_ = server.Shutdown()
				_ = packets.Close()
				_ = listener.Close()
			})
			defer stop()
			if err := server.ActivateAndServe(); err != nil && ctx.Err() == nil {
				return fmt.Errorf("answering DNS: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// ServeDNS answers one question.
func (s *Server) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	answer := new(dns.Msg).SetReply(r)
	answer.Authoritative = true
	if len(r.Question) == 1 {
		s.answer(answer, r.Question[0], clientOf(w.RemoteAddr()))
	} else {
		answer.Rcode = dns.RcodeFormatError
	}
	if err := w.WriteMsg(answer); err != nil {
		s.Log.Debug("sending a dns answer failed", "err", err)
	}
}

func (s *Server) answer(m *dns.Msg, q dns.Question, client netip.Addr) {
	name := strings.TrimSuffix(strings.ToLower(q.Name), ".")
	addresses, ok := s.resolve(name, client)
	if !ok {
		m.Rcode = dns.RcodeNameError
		return
	}
	// Without a record of the type, the answer says that the name exists.
	header := func(rrtype uint16) dns.RR_Header {
		return dns.RR_Header{Name: q.Name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
	}
	for _, address := range addresses {
		if address.Is4() && (q.Qtype == dns.TypeA || q.Qtype == dns.TypeANY) {
			m.Answer = append(m.Answer, &dns.A{Hdr: header(dns.TypeA), A: address.AsSlice()})
		}
		if address.Is6() && (q.Qtype == dns.TypeAAAA || q.Qtype == dns.TypeANY) {
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: header(dns.TypeAAAA), AAAA: address.AsSlice()})
		}
	}
}

func (s *Server) resolve(name string, client netip.Addr) ([]netip.Addr, bool) {
	if host, ok := s.Hosts[name]; ok {
		return parse(host...)
	}
	if name == "elasticfilesystem."+s.Region+".amazonaws.com" {
		return parse(s.APIAddresses...)
	}
	labels, ok := strings.CutSuffix(name, ".efs."+s.Region+".amazonaws.com")
	if !ok {
		return nil, false
	}
	snapshot := s.Inventory.Snapshot()
	zone, fileSystem, zoned := strings.Cut(labels, ".")
	if !zoned {
		// The name of the file system alone resolves to the mount target in the client's zone.
		node, _ := snapshot.NodeOf(client)
		zone, fileSystem = node.Zone, labels
	}
	for _, t := range snapshot.MountTargetsOf(fileSystem) {
		if t.Zone == zone && t.State == inventory.Available {
			return parse(t.Addresses()...)
		}
	}
	return nil, false
}

func parse(texts ...string) ([]netip.Addr, bool) {
	var addresses []netip.Addr
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, false
		}
		addresses = append(addresses, address)
	}
	return addresses, true
}

func clientOf(a net.Addr) netip.Addr {
	client, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return client.Addr().Unmap()
}
