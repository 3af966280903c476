package topology

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/smithy-go/logging"
	corev1 "k8s.io/api/core/v1"
)

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
	region, err := m.Region(ctx)
	if err != nil {
		region = ""
	}
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
