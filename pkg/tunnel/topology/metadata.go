// Package topology gets a node's region, zone and subnets in AWS: from the metadata service of its
// instance, or its region and zone from the labels that the cloud controller manager sets on the Node.
package topology

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/smithy-go/logging"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
)

const (
	// timeout is for all requests of one Find. Outside EC2 nothing answers them.
	timeout = 3 * time.Second
	// maxValueBytes is more than any single value has.
	maxValueBytes = 4 << 10
)

// Metadata is the metadata service of the instance that the program runs on.
type Metadata struct {
	client  *imds.Client
	timeout time.Duration
}

// endpointMode is the SDK's variable for instances that have IPv6 only. imds.New reads the other
// variables itself.
const endpointMode = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"

// NewMetadata makes a client, and sends no request. It uses version 2 of the service only. It does
// not load the SDK's configuration: the service needs no credentials, and the SDK's credential
// providers would take 3 MiB of every agent's memory. An error names the variable that is wrong.
func NewMetadata(getenv func(string) string, log logging.Logger) (Metadata, error) {
	options := imds.Options{Logger: log, EnableFallback: aws.FalseTernary}
	if err := options.EndpointMode.SetFromString(getenv(endpointMode)); err != nil {
		return Metadata{}, fmt.Errorf("%s: %w", endpointMode, err)
	}
	return Metadata{imds.New(options), timeout}, nil
}

// Find gets the instance's region, zone and subnets. It is an error if the zone cannot be had;
// region and subnets may be missing.
func (m Metadata) Find(ctx context.Context) (routing.Location, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	zone, err := m.read(ctx, "placement/availability-zone")
	if err != nil {
		return routing.Location{}, err
	}
	region, err := m.read(ctx, "placement/region")
	if err != nil {
		region = ""
	}
	return routing.Location{Region: region, Zone: zone, Subnets: m.subnets(ctx)}, nil
}

// subnets are those of all network interfaces, beginning with the primary one's.
func (m Metadata) subnets(ctx context.Context) []string {
	const interfaces = "network/interfaces/macs/"
	list, err := m.read(ctx, interfaces)
	if err != nil {
		return nil
	}
	macs := strings.Fields(list)
	if first, err := m.read(ctx, "mac"); err == nil {
		macs = slices.Concat([]string{first}, macs)
	}
	var subnets []string
	for _, mac := range macs {
		subnet, err := m.read(ctx, interfaces+strings.TrimSuffix(mac, "/")+"/subnet-id")
		if err == nil && !slices.Contains(subnets, subnet) {
			subnets = append(subnets, subnet)
		}
	}
	return subnets
}

func (m Metadata) read(ctx context.Context, path string) (string, error) {
	output, err := m.client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", fmt.Errorf("reading %s from instance metadata: %w", path, err)
	}
	defer output.Content.Close()
	text, err := io.ReadAll(io.LimitReader(output.Content, maxValueBytes))
	if err != nil {
		return "", fmt.Errorf("reading %s from instance metadata: %w", path, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// FromLabels gets region and zone from the labels of a Node. No label has its subnets.
func FromLabels(node *corev1.Node) routing.Location {
	return routing.Location{
		Region: node.Labels[corev1.LabelTopologyRegion],
		Zone:   node.Labels[corev1.LabelTopologyZone],
	}
}
