// Package topology finds out where nodes are in AWS: their region, VPC, zone and subnets. The sources
// are settings, the metadata service of the EC2 instance, and the labels of Nodes.
package topology

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
)

// Network is the region and VPC of a cluster's nodes.
type Network struct {
	Region string
	VPCID  string // "" when unknown
}

// Finder finds the region and VPC of a cluster's nodes. For what is set, it sends no request.
type Finder struct {
	Region string // the administrator's, else that of the SDK's environment and files; "" for none
	VPCID  string // the administrator's; "" for none
	// Metadata is the instance metadata service.
	Metadata interface {
		Region(ctx context.Context) (string, error)
		VPCID(ctx context.Context) (string, error)
	}
	// NodeRegion returns the region in the labels of Nodes, "" if no Node has one. It may wait for
	// the apiserver.
	NodeRegion func(ctx context.Context) (string, error)
	Log        *slog.Logger
}

// Find tries settings, instance metadata and Nodes, in this order. Without a region it returns an
// error, as no API can be called; without a VPC it returns none, and mount targets of any VPC are used
// until LateVPC finds it.
func (f *Finder) Find(ctx context.Context) (Network, error) {
	limited, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	region, cause := f.Region, error(nil)
	if region == "" {
		region, cause = f.Metadata.Region(limited)
	}
	if region == "" {
		var err error
		if region, err = f.NodeRegion(ctx); err != nil {
			return Network{}, fmt.Errorf("looking for the AWS region: %w", err)
		}
	}
	if region == "" {
		return Network{}, fmt.Errorf("the AWS region is not known: set --aws-region or AWS_REGION, "+
			"let pods reach the instance metadata service, or label nodes with topology.kubernetes.io/region (instance metadata: %w)", cause)
	}
	return Network{Region: region, VPCID: f.findVPC(limited)}, nil
}

func (f *Finder) findVPC(ctx context.Context) string {
	if f.VPCID != "" {
		return f.VPCID
	}
	id, err := f.Metadata.VPCID(ctx)
	if err != nil {
		f.Log.Warn("VPC of the nodes is not known, so mount targets of any VPC are used until it is; set --vpc-id", "err", err)
		return ""
	}
	return id
}

// LateVPC returns the VPC of the nodes if Find could not, for instance because the node was booting. It
// requests the VPC until the first answer, for at most 3 s at a time, and returns "" without one. It is not
// safe for concurrent use.
func (f *Finder) LateVPC(ctx context.Context) string {
	if f.VPCID != "" {
		return f.VPCID
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	id, err := f.Metadata.VPCID(ctx)
	switch {
	case err != nil:
		f.Log.Debug("VPC of the nodes is still not known", "err", err)
	case id != "":
		f.VPCID = id
		f.Log.Info("VPC of the nodes is known now; mount targets of others are not used any more", "vpc", id)
	}
	return f.VPCID
}

// suffixes are the domains of partitions other than the usual ones, by prefix of their regions' names.
var suffixes = []struct{ region, suffix string }{
	{"cn-", "amazonaws.com.cn"},
	{"eusc-", "amazonaws.eu"},
	{"us-iso-", "c2s.ic.gov"},
	{"us-isob-", "sc2s.sgov.gov"},
	{"us-isof-", "csp.hci.ic.gov"},
	{"eu-isoe-", "cloud.adc-e.uk"},
}

// DNSSuffix returns what follows the id and a dot in a file system's name: efs.us-east-1.amazonaws.com.
// It returns "" without a region.
func DNSSuffix(region string) string {
	if region == "" {
		return ""
	}
	suffix := "amazonaws.com"
	for _, s := range suffixes {
		if strings.HasPrefix(region, s.region) {
			suffix = s.suffix
		}
	}
	return "efs." + region + "." + suffix
}

// HasRoute reports whether this network namespace has a route to any of the addresses. It connects
// datagram sockets, which sends nothing, and stops at the first route.
func HasRoute(addresses ...netip.Addr) bool {
	for _, address := range addresses {
		// The port is not used. Nothing waits that a context could end.
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp", netip.AddrPortFrom(address, 9).String())
		if err == nil {
			conn.Close()
			return true
		}
	}
	return false
}
