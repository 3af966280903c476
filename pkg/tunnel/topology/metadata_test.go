package topology_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go/logging"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/tunnel/topology"
)

// instance serves values as the metadata service does, with version 2 only.
func instance(t *testing.T, values map[string]string) topology.Metadata {
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
	return metadata(t)
}

func metadata(t *testing.T) topology.Metadata {
	t.Helper()
	m, err := topology.NewMetadata(os.Getenv, logging.Nop{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFind(t *testing.T) {
	const data = "/latest/meta-data/"
	const macs = data + "network/interfaces/macs/"
	tests := map[string]struct {
		values map[string]string
		want   routing.Location
		bad    bool
	}{
		"two interfaces, the primary one first": {map[string]string{
			data + "placement/availability-zone": "us-east-1b", data + "placement/region": "us-east-1",
			data + "mac": "0e:02", macs: "0e:01/\n0e:02/",
			macs + "0e:01/subnet-id": "subnet-1", macs + "0e:02/subnet-id": "subnet-2",
		}, routing.Location{Region: "us-east-1", Zone: "us-east-1b", Subnets: []string{"subnet-2", "subnet-1"}}, false},
		"zone only": {map[string]string{data + "placement/availability-zone": "us-east-1b"}, routing.Location{Zone: "us-east-1b"}, false},
		"no zone":   {map[string]string{data + "placement/region": "us-east-1"}, routing.Location{}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := instance(t, tt.values).WithLongTimeout().Find(t.Context())
			if (err != nil) != tt.bad {
				t.Errorf("got error %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("topology (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServiceDoesNotAnswer(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	begin := time.Now()
	if got, err := metadata(t).Find(t.Context()); err == nil || time.Since(begin) > 30*time.Second {
		t.Errorf("got %+v, %v after %s", got, err, time.Since(begin))
	}
}

func TestInvalidEndpointModeIsAnError(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv5")
	if _, err := topology.NewMetadata(os.Getenv, logging.Nop{}); err == nil || !strings.Contains(err.Error(), "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE") {
		t.Errorf("got %v, want the variable's name", err)
	}
}

func TestFromLabels(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		"topology.kubernetes.io/region": "us-east-1", "topology.kubernetes.io/zone": "us-east-1b",
	}}}
	if diff := cmp.Diff(routing.Location{Region: "us-east-1", Zone: "us-east-1b"}, topology.FromLabels(node)); diff != "" {
		t.Errorf("topology (-want +got):\n%s", diff)
	}
}
