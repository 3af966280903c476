// Package topology finds out where nodes are in AWS: their region, VPC, zone and subnets. The sources
// are settings, the metadata service of the EC2 instance, and the labels of Nodes.
package topology

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/smithy-go/logging"
	corev1 "k8s.io/api/core/v1"
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

const (
	// metadataTimeout bounds all requests of one call. Outside EC2, and where pods may not reach the
	// service, nothing answers them.
	metadataTimeout = 3 * time.Second
	maxValueBytes   = 4 << 10 // more than any single value has
	// modeVariable is the SDK's variable for the service's address. imds.New reads the other variables
	// itself.
	modeVariable = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"
	interfaces   = "network/interfaces/macs/"
)

// Metadata is the metadata service of the EC2 instance that the program runs on.
type Metadata struct {
	client  *imds.Client
	timeout time.Duration // of Location
}

// NewMetadata makes a client, and sends no request. It uses version 2 of the service only. It does
// not load the SDK's configuration: the service needs no credentials, and the SDK's credential
// providers would take 3 MiB of every agent's memory. An error names the variable that is wrong.
func NewMetadata(getenv func(string) string, log logging.Logger) (Metadata, error) {
	mode, err := EndpointMode(getenv, HasRoute)
	if err != nil {
		return Metadata{}, err
	}
	return Metadata{imds.New(imds.Options{Logger: log, EnableFallback: aws.FalseTernary, EndpointMode: mode}), metadataTimeout}, nil
}

// The service's addresses.
var ipv4Endpoint, ipv6Endpoint = netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254")

// EndpointMode returns the address of the service that the SDK's clients use, by the SDK's variable. If
// that is unset, it is the one of IPv6 on nodes that can only reach that, else the SDK's own default.
func EndpointMode(getenv func(string) string, hasRoute func(...netip.Addr) bool) (imds.EndpointModeState, error) {
	mode := imds.EndpointModeStateUnset
	if err := mode.SetFromString(getenv(modeVariable)); err != nil {
		return mode, fmt.Errorf("%s: %w", modeVariable, err)
	}
	if mode == imds.EndpointModeStateUnset && !hasRoute(ipv4Endpoint) && hasRoute(ipv6Endpoint) {
		mode = imds.EndpointModeStateIPv6
	}
	return mode, nil
}

// MetadataFromConfig makes a client for programs that load the SDK's configuration. Unless that forbids
// it, the client falls back to version 1, whose answers a hop limit of 1 does not keep from pods.
func MetadataFromConfig(config aws.Config) Metadata {
	return Metadata{imds.NewFromConfig(config), metadataTimeout}
}

// Region returns the instance's region.
func (m Metadata) Region(ctx context.Context) (string, error) { return m.get(ctx, "placement/region") }

// VPCID returns the VPC of the instance's primary network interface.
func (m Metadata) VPCID(ctx context.Context) (string, error) {
	mac, err := m.get(ctx, "mac")
	if err != nil {
		return "", err
	}
	return m.get(ctx, interfaces+strings.TrimSuffix(mac, "/")+"/vpc-id")
}

// Location is the region, zone and subnets of a node. Region and subnets may be unknown.
type Location struct {
	Region  string
	Zone    string
	Subnets []string // of the primary network interface first
}

// Location returns the instance's location, or an error if its zone is not available.
func (m Metadata) Location(ctx context.Context) (Location, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	zone, err := m.get(ctx, "placement/availability-zone")
	if err != nil {
		return Location{}, err
	}
	region, _ := m.Region(ctx) // "" after an error
	return Location{Region: region, Zone: zone, Subnets: m.subnets(ctx)}, nil
}

func (m Metadata) subnets(ctx context.Context) []string {
	list, err := m.get(ctx, interfaces)
	if err != nil {
		return nil
	}
	macs := strings.Fields(list)
	if first, err := m.get(ctx, "mac"); err == nil {
		macs = slices.Concat([]string{first}, macs)
	}
	var subnets []string
	for _, mac := range macs {
		subnet, err := m.get(ctx, interfaces+strings.TrimSuffix(mac, "/")+"/subnet-id")
		if err == nil && !slices.Contains(subnets, subnet) {
			subnets = append(subnets, subnet)
		}
	}
	return subnets
}

func (m Metadata) get(ctx context.Context, path string) (string, error) {
	var text []byte
	output, err := m.client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err == nil {
		defer output.Content.Close()
		text, err = io.ReadAll(io.LimitReader(output.Content, maxValueBytes))
	}
	if err != nil {
		return "", fmt.Errorf("reading %s from instance metadata: %w", path, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// FromLabels returns the region and zone that the cloud controller manager writes to the labels of a
// Node. No label has its subnets.
func FromLabels(node *corev1.Node) Location {
	return Location{Region: node.Labels[corev1.LabelTopologyRegion], Zone: node.Labels[corev1.LabelTopologyZone]}
}
