package awserrors_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/aws/smithy-go"

	"gnuthought.com/efs-stunnel/pkg/manager/awserrors"
)

var errBoom = errors.New("boom")

func awsError(request int, code, message string) error {
	return fmt.Errorf("listing file systems: https response error StatusCode: 400, RequestID: 1a2b-%d, %w",
		request, &smithy.GenericAPIError{Code: code, Message: message})
}

func unreachable(port int) error {
	return fmt.Errorf("listing file systems: %w", &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("10.0.0.1:%d: i/o timeout", port)})
}

func TestCausesDiffer(t *testing.T) {
	denied := awsError(1, "AccessDeniedException", "not authorized")
	tests := map[string]struct {
		a, b error
		same bool
	}{
		"another request":      {denied, awsError(2, "AccessDeniedException", "not authorized"), true},
		"another local port":   {unreachable(40001), unreachable(51234), true},
		"another code":         {denied, awsError(1, "ThrottlingException", "not authorized"), false},
		"another message":      {denied, awsError(1, "AccessDeniedException", "explicit deny"), false},
		"service and network":  {denied, unreachable(40001), false},
		"another text":         {errBoom, errors.New("bang"), false},
		"the same plain error": {errBoom, errBoom, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if a, b := awserrors.Cause(tt.a), awserrors.Cause(tt.b); (a == b) != tt.same {
				t.Errorf("causes %q and %q", a, b)
			}
		})
	}
}

func TestReasonsAndAdvice(t *testing.T) {
	tests := map[string]struct {
		err            error
		reason, advice string // the last is a part
	}{
		"a right of every installation": {
			awsError(1, "AccessDeniedException", "User: x is not authorized to perform: elasticfilesystem:DescribeMountTargets on: y"),
			awserrors.Denied, "elasticfilesystem:DescribeFileSystems, ",
		},
		"a right of classes with access points": {
			awsError(1, "AccessDeniedException", "User: x is not authorized to perform: elasticfilesystem:TagResource on: y"),
			awserrors.Denied, "role elasticfilesystem:TagResource: a class with provisioningMode",
		},
		"an unnamed right":               {awsError(1, "AccessDenied", "no"), awserrors.Denied, "elasticfilesystem:DescribeAccessPoints"},
		"an action in another error":     {awsError(1, "BadRequest", "elasticfilesystem:TagResource"), awserrors.Invalid, "Correct the class"},
		"expired credentials":            {awsError(1, "ExpiredTokenException", "old"), awserrors.Credentials, "Renew"},
		"too many calls":                 {awsError(1, "ThrottlingException", "slow down"), awserrors.Throttled, "--efs-polling-interval"},
		"too many access points":         {awsError(1, "AccessPointLimitExceeded", "full"), awserrors.LimitExceeded, "quota"},
		"a file system that changes":     {awsError(1, "IncorrectFileSystemLifeCycleState", "updating"), awserrors.NotAvailable, "tried again"},
		"a file system that is gone":     {awsError(1, "FileSystemNotFound", "none"), awserrors.NotFound, "--aws-region"},
		"a token of another":             {awsError(1, "AccessPointAlreadyExists", "it is"), awserrors.Conflict, "another name"},
		"no answer in time":              {fmt.Errorf("listing: %w", context.DeadlineExceeded), awserrors.Unreachable, "VPC endpoint"},
		"no network":                     {unreachable(40001), awserrors.Unreachable, "VPC endpoint"},
		"an error that is not the API's": {errBoom, awserrors.Other, "--aws-region"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := awserrors.Reason(tt.err); got != tt.reason {
				t.Errorf("reason %s, want %s", got, tt.reason)
			}
			if got := awserrors.Advice(tt.err); !strings.Contains(got, tt.advice) {
				t.Errorf("advice %q lacks %q", got, tt.advice)
			}
		})
	}
}
