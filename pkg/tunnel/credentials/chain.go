// Package credentials finds out by the AWS SDK's own chain which IAM identity a node has.
package credentials

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"gnuthought.com/efs-stunnel/pkg/clientcert"
	"gnuthought.com/efs-stunnel/pkg/tunnel/certificates"
)

// Chain is environment, files, web identity, container and instance, in the SDK's order.
type Chain struct{ Log logging.Logger }

// Find looks for credentials. It begins anew each time: the SDK would keep what it found until
// that expires, and newer ones are wanted before. The region is that of the token service, where
// the environment names none.
func (c Chain) Find(ctx context.Context, region string) (certificates.Credentials, error) {
	sdk, err := config.LoadDefaultConfig(ctx, config.WithDefaultRegion(region), config.WithLogger(c.Log),
		config.WithCredentialsCacheOptions(trueExpiry))
	if err != nil {
		return certificates.Credentials{}, plain(err)
	}
	found, err := sdk.Credentials.Retrieve(ctx)
	if err != nil {
		return certificates.Credentials{}, plain(err)
	}
	credentials := certificates.Credentials{Credentials: clientcert.Credentials{
		AccessKeyID: found.AccessKeyID, SecretAccessKey: found.SecretAccessKey, SessionToken: found.SessionToken,
	}}
	if found.CanExpire {
		credentials.Expires = found.Expires
	}
	return credentials, nil
}

// trueExpiry: of some credentials the SDK says that they expire five minutes before they do.
func trueExpiry(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = 0 }

// plain leaves out the number that each request has: the same refusal must read the same, or it
// is told each time.
func plain(err error) error {
	var operation *smithy.OperationError
	var refusal smithy.APIError
	if errors.As(err, &operation) && errors.As(err, &refusal) {
		return fmt.Errorf("%s %s: %s: %s", operation.Service(), operation.Operation(), refusal.ErrorCode(), refusal.ErrorMessage())
	}
	return err
}
