package table

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
)

// apiError is what the AWS SDK's errors of the service itself have.
type apiError interface {
	ErrorCode() string
	ErrorMessage() string
}

// causeOf is equal for errors that have one cause: their ids, requests, ports and times differ.
func causeOf(err error) string {
	if code := apiError(nil); errors.As(err, &code) {
		return code.ErrorCode() + " " + changing.ReplaceAllString(code.ErrorMessage(), "#")
	}
	return changing.ReplaceAllString(err.Error(), "#")
}

var changing = regexp.MustCompile(`\bfs(ap|mt)?-[0-9a-z]+|[-0-9A-Za-z]*[0-9][-0-9A-Za-z]*`)

// apiMessage is an error of the API as an event shows it, without the id of the request.
func apiMessage(err error) string {
	if code := apiError(nil); errors.As(err, &code) {
		return strings.TrimSuffix(code.ErrorCode()+": "+code.ErrorMessage(), ": ")
	}
	return requestID.ReplaceAllString(err.Error(), "")
}

var requestID = regexp.MustCompile(`(?i),? ?request ?id: [-0-9a-z]*`)

// advice says what to do about an error of the API.
func advice(err error) string {
	if code := apiError(nil); errors.As(err, &code) {
		for _, known := range adviceByCode {
			if slices.Contains(known.codes, code.ErrorCode()) {
				return known.advice
			}
		}
	}
	if network := net.Error(nil); errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) {
		return "Check that the manager's pod reaches the EFS API of its region: DNS, NAT gateway or VPC endpoint, security groups"
	}
	return "Check the manager's AWS credentials, its region (--aws-region) and its network path to the EFS API"
}

type codeAdvice struct {
	codes  []string
	advice string
}

var adviceByCode = []codeAdvice{
	{
		codes:  []string{"AccessDeniedException", "AccessDenied", "UnauthorizedOperation"},
		advice: "Allow the manager's AWS role elasticfilesystem:DescribeFileSystems, elasticfilesystem:DescribeMountTargets and elasticfilesystem:DescribeAccessPoints",
	},
	{
		codes: []string{"ExpiredToken", "ExpiredTokenException", "UnrecognizedClientException", "InvalidClientTokenId",
			"InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationToken"},
		advice: "Renew the manager's AWS credentials, and check its clock",
	},
	{
		codes:  []string{"ThrottlingException", "Throttling", "TooManyRequestsException", "TooManyRequests", "RequestLimitExceeded"},
		advice: "The next poll tries again; if this stays, raise --efs-polling-interval",
	},
}
