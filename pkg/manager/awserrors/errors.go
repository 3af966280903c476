// Package awserrors names the causes of errors of the EFS API, and what administrators do about them.
package awserrors

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// codeError matches the AWS SDK's errors of the service itself.
type codeError interface {
	ErrorCode() string
	ErrorMessage() string
}

// Cause is equal for errors that have one cause: their ids, requests, ports and times differ.
func Cause(err error) string {
	if code := codeError(nil); errors.As(err, &code) {
		return code.ErrorCode() + " " + changing.ReplaceAllString(code.ErrorMessage(), "#")
	}
	return changing.ReplaceAllString(err.Error(), "#")
}

var changing = regexp.MustCompile(`\bfs(ap|mt)?-[0-9a-z]+|[-0-9A-Za-z]*[0-9][-0-9A-Za-z]*`)

// Message returns an error as an event shows it, without the id of the request.
func Message(err error) string {
	if code := codeError(nil); errors.As(err, &code) {
		return strings.TrimSuffix(code.ErrorCode()+": "+code.ErrorMessage(), ": ")
	}
	return requestID.ReplaceAllString(err.Error(), "")
}

var requestID = regexp.MustCompile(`(?i),? ?request ?id: [-0-9a-z]*`)

// The reasons of errors.
const (
	Denied        = "Denied"        // an action is not allowed
	Credentials   = "Credentials"   // expired or wrong
	Throttled     = "Throttled"     // too many calls
	LimitExceeded = "LimitExceeded" // the file system has all the access points that it may have
	NotAvailable  = "NotAvailable"  // the file system is in a state that refuses changes
	NotFound      = "NotFound"      // the file system or the access point does not exist
	Conflict      = "Conflict"      // the client token is another access point's
	Invalid       = "Invalid"       // a parameter of the call
	Unreachable   = "Unreachable"   // no answer
	Other         = "Other"
)

// Reason returns the reason of an error of the API.
func Reason(err error) string {
	if code := codeError(nil); errors.As(err, &code) {
		for _, known := range reasons {
			if slices.Contains(known.codes, code.ErrorCode()) {
				return known.reason
			}
		}
	}
	if network := net.Error(nil); errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) {
		return Unreachable
	}
	return Other
}

// reasons maps the codes of the API's reference, and of the list of errors common to all of AWS.
var reasons = []struct {
	reason string
	codes  []string
}{
	{Denied, []string{"AccessDeniedException", "AccessDenied", "UnauthorizedOperation"}},
	{Credentials, []string{"ExpiredToken", "ExpiredTokenException", "UnrecognizedClientException", "InvalidClientTokenId",
		"InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationToken"}},
	{Throttled, []string{"ThrottlingException", "Throttling", "TooManyRequestsException", "TooManyRequests", "RequestLimitExceeded"}},
	{LimitExceeded, []string{"AccessPointLimitExceeded"}},
	{NotAvailable, []string{"IncorrectFileSystemLifeCycleState"}},
	{NotFound, []string{"FileSystemNotFound", "AccessPointNotFound"}},
	{Conflict, []string{"AccessPointAlreadyExists"}},
	{Invalid, []string{"BadRequest", "ValidationException"}},
}

var deniedAction = regexp.MustCompile(`\belasticfilesystem:[A-Za-z]+`)

// Advice returns what to do about an error of the API.
func Advice(err error) string {
	reason, action := Reason(err), deniedAction.FindString(Message(err))
	if reason == Denied && action != "" && !slices.Contains(discovery, action) {
		return fmt.Sprintf("Allow the manager's AWS role %s: a class with provisioningMode efs-ap needs it, see %stasks/aws-permissions.md", action, wellknown.DocsURL)
	}
	return advice[reason]
}

// discovery are the actions that every installation with --discovery=efs needs.
var discovery = []string{
	"elasticfilesystem:DescribeFileSystems", "elasticfilesystem:DescribeMountTargets", "elasticfilesystem:DescribeAccessPoints",
}

var advice = map[string]string{
	Denied: "Allow the manager's AWS role elasticfilesystem:DescribeFileSystems, elasticfilesystem:DescribeMountTargets and " +
		"elasticfilesystem:DescribeAccessPoints",
	Credentials:   "Renew the manager's AWS credentials, and check its clock",
	Throttled:     "It is tried again; if this stays, raise --efs-polling-interval",
	LimitExceeded: "Delete access points that are not used, have AWS raise the file system's quota of access points, or use a class with another file system",
	NotAvailable:  "It is tried again; if this stays, look at the file system's state in AWS",
	NotFound:      "Check the file system's id in the class, and the manager's region (--aws-region) and account",
	Conflict:      "Delete that access point if nothing uses it, or create the claim again under another name",
	Invalid:       "Correct the class: what the API says is wrong comes from its parameters",
	Unreachable:   "Check that the manager's pod reaches the EFS API of its region: DNS, NAT gateway or VPC endpoint, security groups",
	Other:         "Check the manager's AWS credentials, its region (--aws-region) and its network path to the EFS API",
}
