package awsplace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/awsplace"
)

var errUnreachable = errors.New("no route to host")

// world plays metadata and nodes, and records who was asked.
type world struct {
	region, vpcID, nodeRegion string // "" for metadata that cannot be reached
	nodeErr                   error
	asked                     []string
}

func (w *world) answer(what, value string) (string, error) {
	w.asked = append(w.asked, what)
	if value == "" {
		return "", errUnreachable
	}
	return value, nil
}

func (w *world) Region(context.Context) (string, error) {
	return w.answer("metadata region", w.region)
}

func (w *world) VPCID(context.Context) (string, error) { return w.answer("metadata vpc", w.vpcID) }

func (w *world) node(context.Context) (string, error) {
	w.asked = append(w.asked, "nodes")
	return w.nodeRegion, w.nodeErr
}

func TestFind(t *testing.T) {
	tests := map[string]struct {
		region, vpcID string // settings
		world         world
		want          awsplace.Place
		asked         []string
	}{
		"settings need no asking": {
			region: "eu-west-1", vpcID: "vpc-1", world: world{region: "us-east-1", vpcID: "vpc-2", nodeRegion: "us-west-2"},
			want: awsplace.Place{Region: "eu-west-1", VPCID: "vpc-1"},
		},
		"metadata comes next": {
			world: world{region: "us-east-1", vpcID: "vpc-2", nodeRegion: "us-west-2"},
			want:  awsplace.Place{Region: "us-east-1", VPCID: "vpc-2"}, asked: []string{"metadata region", "metadata vpc"},
		},
		"nodes come last": {
			world: world{nodeRegion: "us-west-2"},
			want:  awsplace.Place{Region: "us-west-2"}, asked: []string{"metadata region", "nodes", "metadata vpc"},
		},
		"a VPC alone is asked for": {
			region: "eu-west-1", world: world{vpcID: "vpc-2"},
			want: awsplace.Place{Region: "eu-west-1", VPCID: "vpc-2"}, asked: []string{"metadata vpc"},
		},
		"no VPC is any VPC": {
			region: "eu-west-1",
			want:   awsplace.Place{Region: "eu-west-1"}, asked: []string{"metadata vpc"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			w := tt.world
			got, err := awsplace.Finder{
				Region: tt.region, VPCID: tt.vpcID, Metadata: &w, NodeRegion: w.node,
				Log: slog.New(slog.NewTextHandler(&log, nil)),
			}.Find(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("place mismatch (-want +got):\n%s", diff)
			}
			if !slices.Equal(w.asked, tt.asked) {
				t.Errorf("asked %q, want %q", w.asked, tt.asked)
			}
			if told := strings.Contains(log.String(), "set --vpc-id"); told != (got.VPCID == "") {
				t.Errorf("the log is %q", log.String())
			}
		})
	}
}

func TestNoRegionIsAnError(t *testing.T) {
	w := world{vpcID: "vpc-1"}
	_, err := awsplace.Finder{Metadata: &w, NodeRegion: w.node, Log: slog.New(slog.DiscardHandler)}.Find(t.Context())
	if err == nil || !errors.Is(err, errUnreachable) || !strings.Contains(err.Error(), "set --aws-region or AWS_REGION") {
		t.Errorf("got %v, want an error that says what to set, and why it is needed", err)
	}
	w = world{nodeErr: context.Canceled}
	_, err = awsplace.Finder{Metadata: &w, NodeRegion: w.node, Log: slog.New(slog.DiscardHandler)}.Find(t.Context())
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the reason why nodes could not be read", err)
	}
}

// silent is metadata behind a firewall that swallows packets.
type silent struct{}

func (silent) Region(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func (s silent) VPCID(ctx context.Context) (string, error) { return s.Region(ctx) }

func TestSilentMetadataHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		w := world{nodeRegion: "us-west-2"}
		got, err := awsplace.Finder{Metadata: silent{}, NodeRegion: w.node, Log: slog.New(slog.DiscardHandler)}.Find(t.Context())
		if err != nil || got.Region != "us-west-2" {
			t.Errorf("got %v, %v", got, err)
		}
		if waited := time.Since(begin); waited != 3*time.Second {
			t.Errorf("it took %s, want 3s for all questions", waited)
		}
	})
}

func TestInstanceMetadata(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]string{
			"/latest/api/token":     "a-token",
			"/latest/meta-data/mac": "0e:49:61:0f:c3:11",
			"/latest/meta-data/network/interfaces/macs/0e:49:61:0f:c3:11/vpc-id": "vpc-0123456789abcdef0",
			"/latest/dynamic/instance-identity/document":                         `{"region": "us-east-1"}`,
		}
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
		fmt.Fprint(w, answer)
	}))
	defer server.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
	metadata := awsplace.InstanceMetadata(aws.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // in place of the SDK's few seconds
	defer cancel()
	if got, err := metadata.Region(ctx); err != nil || got != "us-east-1" {
		t.Errorf("region %q, %v", got, err)
	}
	if got, err := metadata.VPCID(ctx); err != nil || got != "vpc-0123456789abcdef0" {
		t.Errorf("VPC %q, %v", got, err)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	disabled := awsplace.InstanceMetadata(aws.Config{})
	if got, err := disabled.VPCID(t.Context()); err == nil {
		t.Errorf("VPC %q from metadata that is disabled", got)
	}
}

func TestDNSSuffix(t *testing.T) {
	for region, want := range map[string]string{
		"us-east-1":      "efs.us-east-1.amazonaws.com",
		"us-gov-west-1":  "efs.us-gov-west-1.amazonaws.com",
		"cn-north-1":     "efs.cn-north-1.amazonaws.com.cn",
		"eusc-de-east-1": "efs.eusc-de-east-1.amazonaws.eu",
		"us-iso-east-1":  "efs.us-iso-east-1.c2s.ic.gov",
		"us-isob-east-1": "efs.us-isob-east-1.sc2s.sgov.gov",
		"us-isof-east-1": "efs.us-isof-east-1.csp.hci.ic.gov",
		"eu-isoe-west-1": "efs.eu-isoe-west-1.cloud.adc-e.uk",
	} {
		if got := awsplace.DNSSuffix(region); got != want {
			t.Errorf("%s: got %q, want %q", region, got, want)
		}
	}
}
