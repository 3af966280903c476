// Package nodecheck reads on a node what decides whether it can mount volumes. It runs in a short-lived
// pod on the host's network, which has the node's root directory read-only.
package nodecheck

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/program/nfsnull"
)

// Bounds of what a report says about failures: a pod's termination message has 4 KiB.
const mostFailures, mostError = 10, 160

// check carries out a request.
type check struct{ nodereport.Request }

// Run reads everything but the EFS API. What cannot be read is empty in the report. Without roots in the
// request, those of the first file that exists count.
func Run(ctx context.Context, request nodereport.Request, caFiles []string) nodereport.Report {
	r := check{request}
	report := nodereport.Report{
		MountNFS: r.mountNFS(), Kernel: r.line(r.Proc, "sys/kernel/osrelease"), HostName: r.hostName(),
		PortRange: r.line(r.Proc, "sys/net/ipv4/ip_local_port_range"), Reserved: r.line(r.Proc, "sys/net/ipv4/ip_local_reserved_ports"),
		Enforcing: r.line(r.Host, "sys/fs/selinux/enforce") == "1", Booleans: r.booleans(),
	}
	report.NFS4 = r.nfs4(report.Kernel)
	for _, failure := range r.servers(ctx, caFiles) {
		switch {
		case failure.Reason == "":
			report.Answered++
			continue
		case len(report.Failures) < mostFailures:
			failure.Error = failure.Error[:min(len(failure.Error), mostError)]
			report.Failures = append(report.Failures, failure)
		}
		report.Failed++
	}
	return report
}

// line is the text of a file of one line, "" if it cannot be read.
func (check) line(root, name string) string {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// hostName has the form of the kernel's name for itself as an NFS client.
func (r check) hostName() string {
	name := r.line(r.Proc, "sys/kernel/hostname")
	if id := r.line(r.Host, "sys/module/nfs/parameters/nfs4_unique_id"); id != "" {
		return id + "/" + name
	}
	return name
}

// mountNFS finds the helper where mount looks for it. It may be a link to anywhere on the node.
func (r check) mountNFS() []string {
	found := []string{}
	for _, name := range []string{"/sbin/mount.nfs", "/usr/sbin/mount.nfs", "/bin/mount.nfs", "/usr/bin/mount.nfs"} {
		if _, err := os.Lstat(filepath.Join(r.Host, name)); err == nil {
			found = append(found, name)
		}
	}
	return found
}

// nfs4 says how the kernel has the NFS client. A module is loaded by the first mount.
func (r check) nfs4(kernel string) string {
	text, _ := os.ReadFile(filepath.Join(r.Proc, "filesystems"))
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == "nfs4" {
			return "loaded"
		}
	}
	for _, dir := range []string{"lib/modules", "usr/lib/modules"} {
		for _, list := range []struct{ name, how string }{{"modules.dep", "module"}, {"modules.builtin", "built in"}} {
			if hasModule(filepath.Join(r.Host, dir, filepath.Base(cmp.Or(kernel, "none")), list.name), "nfsv4.ko") {
				return list.how
			}
		}
	}
	return ""
}

// hasModule says whether a list has a module of its own, and not only as what others depend on.
func hasModule(list, module string) bool {
	text, _ := os.ReadFile(list)
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, ":")
		if strings.HasPrefix(filepath.Base(name), module) { // .xz, .gz and .zst may follow
			return true
		}
	}
	return false
}

func (r check) booleans() map[string]bool {
	found := map[string]bool{}
	for _, name := range []string{"virt_use_nfs", "virt_sandbox_use_nfs"} {
		if value := r.line(r.Host, "sys/fs/selinux/booleans/"+name); value != "" { // the present value, then the pending one
			found[name] = strings.HasPrefix(value, "1")
		}
	}
	return found
}

// timeout is that of one server.
const timeout = 5 * time.Second

func (r check) servers(ctx context.Context, caFiles []string) []nodereport.Failure {
	network := &probe.Network{}
	if r.CA != "" {
		file, err := writeCA(r.CA)
		if err != nil {
			return []nodereport.Failure{{Reason: tunnelspec.ProbeCertificate, Error: err.Error()}}
		}
		defer func() { _ = os.Remove(file) }() // the pod ends anyway
		network.CAFile = file
	} else if i := slices.IndexFunc(caFiles, isThere); i >= 0 {
		network.CAFile = caFiles[i]
	}
	all := make([]nodereport.Failure, len(r.Servers))
	var group sync.WaitGroup
	for i, server := range r.Servers {
		group.Go(func() {
			limited, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			all[i] = reach(limited, network, server)
		})
	}
	group.Wait()
	return all
}

func isThere(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// reach has no reason if the server answers.
func reach(ctx context.Context, dialer probe.Dialer, server nodereport.Server) nodereport.Failure {
	reached := nodereport.Failure{FileSystem: server.FileSystem, Address: server.Address}
	address, err := resolve(ctx, server)
	if err != nil {
		reached.Reason, reached.Error = nodereport.ReasonName, err.Error()
		return reached
	}
	reached.Address = address.String()
	conn, err := dialer.Server(ctx, address, probe.Peer{Host: server.Host})
	if err == nil {
		defer conn.Close()
		err = nfsnull.Call(ctx, conn, 1)
	}
	if err != nil {
		reached.Reason, reached.Error = probe.Reason(err), err.Error()
	}
	return reached
}

// resolve returns the address that the server has, or that its name has on this node: EFS' names resolve
// to the mount target of the node's zone.
func resolve(ctx context.Context, server nodereport.Server) (netip.AddrPort, error) {
	if withPort, err := netip.ParseAddrPort(server.Address); err == nil {
		return withPort, nil
	}
	if server.Address != "" {
		address, err := netip.ParseAddr(server.Address)
		return netip.AddrPortFrom(address, wellknown.NFSPort), err
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", server.Host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(addresses) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%s has no address", server.Host)
	}
	return netip.AddrPortFrom(preferred(addresses, topology.HasRoute), wellknown.NFSPort), nil
}

// preferred is the address that the node agent would try first: of IPv4 before IPv6, with a route before
// one without.
func preferred(addresses []netip.Addr, hasRoute func(...netip.Addr) bool) netip.Addr {
	sorted := slices.Clone(addresses)
	for i, address := range sorted {
		sorted[i] = address.Unmap()
	}
	slices.SortFunc(sorted, netip.Addr.Compare)
	if i := slices.IndexFunc(sorted, func(address netip.Addr) bool { return hasRoute(address) }); i >= 0 {
		return sorted[i]
	}
	return sorted[0]
}

// writeCA stores roots in a file, which is how the agent gets them.
func writeCA(text string) (string, error) {
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(text)) {
		return "", errors.New("there is no certificate among the roots")
	}
	file, err := os.CreateTemp("", "roots-*.pem")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(text)
	return file.Name(), errors.Join(err, file.Close())
}
