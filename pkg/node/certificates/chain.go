package certificates

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"gnuthought.com/efs-stunnel/pkg/efs/awsconfig"
	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
)

// Chain is the SDK's default chain: environment, files, web identity, container, instance.
type Chain struct{ Log logging.Logger }

// Find gets credentials without a cache: the SDK's cache would return the same ones until they
// expire, but certificates are renewed with newer ones before. The region is used for requests to
// AWS STS if the environment has none.
func (c Chain) Find(ctx context.Context, region string) (clientcert.Credentials, error) {
	sdk, err := awsconfig.Load(ctx, config.WithDefaultRegion(region), config.WithLogger(c.Log),
		config.WithCredentialsCacheOptions(trueExpiry))
	if err != nil {
		return clientcert.Credentials{}, withoutRequestID(err)
	}
	found, err := sdk.Credentials.Retrieve(ctx)
	if err != nil {
		return clientcert.Credentials{}, withoutRequestID(err)
	}
	credentials := clientcert.Credentials{
		AccessKeyID: found.AccessKeyID, SecretAccessKey: found.SecretAccessKey, SessionToken: found.SessionToken,
	}
	if found.CanExpire {
		credentials.Expires = found.Expires
	}
	return credentials, nil
}

// trueExpiry switches off the SDK's window, by which some credentials expire five minutes early.
func trueExpiry(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = 0 }

// withoutRequestID removes the request's id from an error of AWS: equal errors must have equal
// messages, or each would be a new event.
func withoutRequestID(err error) error {
	var operation *smithy.OperationError
	var response smithy.APIError
	if errors.As(err, &operation) && errors.As(err, &response) {
		return fmt.Errorf("%s %s: %s: %s", operation.Service(), operation.Operation(), response.ErrorCode(), response.ErrorMessage())
	}
	return err
}
