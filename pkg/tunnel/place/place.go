// Package place finds out where in AWS a node is: from the metadata of its instance, or without
// it from the labels that the cloud's controller put on the Node.
package place

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
	// timeout bounds all questions of one try. Outside EC2 there is no answer at all.
	timeout = 3 * time.Second
	// maxValueBytes is more than any single value has.
	maxValueBytes = 4 << 10
)

// Metadata is the metadata service of the instance that the program runs on.
type Metadata struct {
	client  *imds.Client
	timeout time.Duration
}

// endpointMode is the SDK's variable for instances that have IPv6 only. The others that matter
// here, imds.New reads itself.
const endpointMode = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"

// NewMetadata asks nothing yet. Only version 2 of the service is used. It does without the SDK's
// configuration, whose ways to log in are 3 MiB of every agent's memory: the service asks for no
// credentials. An error says which variable is wrong.
func NewMetadata(getenv func(string) string, log logging.Logger) (Metadata, error) {
	options := imds.Options{Logger: log, EnableFallback: aws.FalseTernary}
	if err := options.EndpointMode.SetFromString(getenv(endpointMode)); err != nil {
		return Metadata{}, fmt.Errorf("%s: %w", endpointMode, err)
	}
	return Metadata{imds.New(options), timeout}, nil
}

// Find asks for the instance's place. Without a zone there is an error; subnets are a gain only.
func (m Metadata) Find(ctx context.Context) (routing.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	zone, err := m.read(ctx, "placement/availability-zone")
	if err != nil {
		return routing.Place{}, err
	}
	region, err := m.read(ctx, "placement/region")
	if err != nil {
		region = ""
	}
	return routing.Place{Region: region, Zone: zone, Subnets: m.subnets(ctx)}, nil
}

// subnets are those of all interfaces, that of the first one first.
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
	answer, err := m.client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", fmt.Errorf("reading %s from instance metadata: %w", path, err)
	}
	defer answer.Content.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Content, maxValueBytes))
	if err != nil {
		return "", fmt.Errorf("reading %s from instance metadata: %w", path, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// FromLabels is the place that a Node's labels tell. They do not tell its subnets.
func FromLabels(node *corev1.Node) routing.Place {
	return routing.Place{
		Region: node.Labels[corev1.LabelTopologyRegion],
		Zone:   node.Labels[corev1.LabelTopologyZone],
	}
}
