package awsplace

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// maxMetadataBytes is more than any single value has.
const maxMetadataBytes = 4 << 10

// InstanceMetadata is the service of the EC2 instance that the program runs on.
func InstanceMetadata(config aws.Config) Metadata { return instance{imds.NewFromConfig(config)} }

type instance struct{ client *imds.Client }

// Region implements Metadata.
func (i instance) Region(ctx context.Context) (string, error) {
	answer, err := i.client.GetRegion(ctx, &imds.GetRegionInput{})
	if err != nil {
		return "", fmt.Errorf("reading the region from instance metadata: %w", err)
	}
	return answer.Region, nil
}

// VPCID implements Metadata. It is that of the instance's first network interface.
func (i instance) VPCID(ctx context.Context) (string, error) {
	mac, err := i.read(ctx, "mac")
	if err != nil {
		return "", err
	}
	return i.read(ctx, "network/interfaces/macs/"+strings.TrimSuffix(mac, "/")+"/vpc-id")
}

func (i instance) read(ctx context.Context, path string) (string, error) {
	answer, err := i.client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", fmt.Errorf("reading %s from instance metadata: %w", path, err)
	}
	defer answer.Content.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Content, maxMetadataBytes))
	if err != nil {
		return "", fmt.Errorf("reading %s from instance metadata: %w", path, err)
	}
	return strings.TrimSpace(string(text)), nil
}
