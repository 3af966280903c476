// Package awsconfig loads the AWS SDK's configuration for all programs that use it.
package awsconfig

import (
	"context"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"gnuthought.com/efs-stunnel/pkg/efs/topology"
)

// Load calls config.LoadDefaultConfig, but lets the SDK's clients, those for credentials among them,
// find the instance metadata service on nodes that have IPv6 only.
func Load(ctx context.Context, options ...func(*config.LoadOptions) error) (aws.Config, error) {
	mode, err := topology.EndpointMode(os.Getenv, topology.HasRoute)
	if err != nil {
		return aws.Config{}, err
	}
	return config.LoadDefaultConfig(ctx, append(options, config.WithEC2IMDSEndpointMode(mode))...)
}
