package topology_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/smithy-go/logging"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/efs/topology"
)

// serveMetadata serves values as the metadata service does, with version 2 only.
func serveMetadata(t *testing.T, values map[string]string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" {
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
			_, _ = w.Write([]byte("token")) // the client reports it
			return
		}
		value, ok := values[r.URL.Path]
		if !ok || r.Header.Get("X-Aws-Ec2-Metadata-Token") != "token" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(value)) // the client reports it
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
}

func metadata(t *testing.T) topology.Metadata {
	t.Helper()
	m, err := topology.NewMetadata(os.Getenv, logging.Nop{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLocation(t *testing.T) {
	const data = "/latest/meta-data/"
	const macs = data + "network/interfaces/macs/"
	tests := map[string]struct {
		values map[string]string
		want   topology.Location
		bad    bool
	}{
		"two interfaces, the primary one first": {map[string]string{
			data + "placement/availability-zone": "us-east-1b", data + "placement/region": "us-east-1",
			data + "mac": "0e:02", macs: "0e:01/\n0e:02/",
			macs + "0e:01/subnet-id": "subnet-1", macs + "0e:02/subnet-id": "subnet-2",
		}, topology.Location{Region: "us-east-1", Zone: "us-east-1b", Subnets: []string{"subnet-2", "subnet-1"}}, false},
		"zone only": {map[string]string{data + "placement/availability-zone": "us-east-1b"}, topology.Location{Zone: "us-east-1b"}, false},
		"no zone":   {map[string]string{data + "placement/region": "us-east-1"}, topology.Location{}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			serveMetadata(t, tt.values)
			got, err := metadata(t).WithLongTimeout().Location(t.Context())
			if (err != nil) != tt.bad {
				t.Errorf("got error %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("location (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRegionAndVPCOfTheInstance(t *testing.T) {
	const data = "/latest/meta-data/"
	serveMetadata(t, map[string]string{
		data + "mac": "0e:49:61:0f:c3:11", data + "placement/region": "us-east-1",
		data + "network/interfaces/macs/0e:49:61:0f:c3:11/vpc-id": "vpc-0123456789abcdef0",
	})
	m := topology.MetadataFromConfig(aws.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // in place of the SDK's few seconds
	defer cancel()
	if got, err := m.Region(ctx); err != nil || got != "us-east-1" {
		t.Errorf("region %q, %v", got, err)
	}
	if got, err := m.VPCID(ctx); err != nil || got != "vpc-0123456789abcdef0" {
		t.Errorf("VPC %q, %v", got, err)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if got, err := topology.MetadataFromConfig(aws.Config{}).VPCID(t.Context()); err == nil {
		t.Errorf("VPC %q from metadata that is disabled", got)
	}
}

func TestServiceDoesNotAnswer(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	begin := time.Now()
	if got, err := metadata(t).Location(t.Context()); err == nil || time.Since(begin) > 30*time.Second {
		t.Errorf("got %+v, %v after %s", got, err, time.Since(begin))
	}
}

func TestInvalidEndpointModeIsAnError(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv5")
	if _, err := topology.NewMetadata(os.Getenv, logging.Nop{}); err == nil || !strings.Contains(err.Error(), "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE") {
		t.Errorf("got %v, want the variable's name", err)
	}
}

func TestEndpointMode(t *testing.T) {
	tests := map[string]struct {
		value  string
		routes []string
		want   imds.EndpointModeState
	}{
		"IPv4 only":                  {"", []string{"169.254.169.254"}, imds.EndpointModeStateUnset},
		"both":                       {"", []string{"169.254.169.254", "fd00:ec2::254"}, imds.EndpointModeStateUnset},
		"IPv6 only":                  {"", []string{"fd00:ec2::254"}, imds.EndpointModeStateIPv6},
		"neither, as in a lab":       {"", nil, imds.EndpointModeStateUnset},
		"IPv6 only, set to IPv4":     {"IPv4", []string{"fd00:ec2::254"}, imds.EndpointModeStateIPv4},
		"IPv4 only, but set to IPv6": {"IPv6", []string{"169.254.169.254"}, imds.EndpointModeStateIPv6},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			getenv := func(string) string { return tt.value }
			hasRoute := func(addresses ...netip.Addr) bool { return slices.Contains(tt.routes, addresses[0].String()) }
			if got, err := topology.EndpointMode(getenv, hasRoute); got != tt.want || err != nil {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestFromLabels(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		"topology.kubernetes.io/region": "us-east-1", "topology.kubernetes.io/zone": "us-east-1b",
	}}}
	if diff := cmp.Diff(topology.Location{Region: "us-east-1", Zone: "us-east-1b"}, topology.FromLabels(node)); diff != "" {
		t.Errorf("location (-want +got):\n%s", diff)
	}
}
