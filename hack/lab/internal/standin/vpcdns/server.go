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

// Options are what a server needs.
type Options struct {
	Inventory  *inventory.Store
	Region     string
	APIAddress string            // IP address of the EFS API
	Hosts      map[string]string // more names and their IP addresses
	Log        *slog.Logger
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
	address, ok := s.resolve(name, client)
	if !ok {
		m.Rcode = dns.RcodeNameError
		return
	}
	if q.Qtype != dns.TypeA && q.Qtype != dns.TypeANY {
		return // the name exists, but has no record of that type
	}
	m.Answer = append(m.Answer, &dns.A{
		Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl},
		A:   address.AsSlice(),
	})
}

func (s *Server) resolve(name string, client netip.Addr) (netip.Addr, bool) {
	if host, ok := s.Hosts[name]; ok {
		return parse(host)
	}
	if name == "elasticfilesystem."+s.Region+".amazonaws.com" {
		return parse(s.APIAddress)
	}
	labels, ok := strings.CutSuffix(name, ".efs."+s.Region+".amazonaws.com")
	if !ok {
		return netip.Addr{}, false
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
			return parse(t.Address)
		}
	}
	return netip.Addr{}, false
}

func parse(address string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(address)
	return ip, err == nil && ip.Is4()
}

func clientOf(a net.Addr) netip.Addr {
	client, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return client.Addr().Unmap()
}
