package awsconfig_test

import (
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"gnuthought.com/efs-stunnel/pkg/efs/awsconfig"
)

const modeVariable = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"

// modeOf returns what the SDK's clients find in its configuration.
func modeOf(sdk aws.Config) imds.EndpointModeState {
	for _, source := range sdk.ConfigSources {
		if s, ok := source.(interface {
			GetEC2IMDSEndpointMode() (imds.EndpointModeState, bool, error)
		}); ok {
			if mode, found, _ := s.GetEC2IMDSEndpointMode(); found {
				return mode
			}
		}
	}
	return imds.EndpointModeStateUnset
}

func TestNodesWithOnlyIPv6FindTheMetadata(t *testing.T) {
	t.Setenv(modeVariable, "")
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, in its network namespace
		defer close(done)
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		for _, arguments := range []string{"link set lo up", "address add fd00:ec2::254/128 dev lo"} {
			if output, err := exec.CommandContext(t.Context(), "ip", strings.Fields(arguments)...).CombinedOutput(); err != nil {
				t.Errorf("ip %s: %v: %s", arguments, err, output)
			}
		}
		if sdk, err := awsconfig.Load(t.Context()); err != nil || modeOf(sdk) != imds.EndpointModeStateIPv6 {
			t.Errorf("mode %v, %v", modeOf(sdk), err)
		}
	}()
	if err := <-done; err != nil {
		t.Skip("no network namespace:", err)
	}
}

func TestInvalidEndpointModeIsAnError(t *testing.T) {
	t.Setenv(modeVariable, "IPv5")
	if _, err := awsconfig.Load(t.Context()); err == nil || !strings.Contains(err.Error(), modeVariable) {
		t.Errorf("got %v, want the variable's name", err)
	}
}
