package topology_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/efs/topology"
)

var errUnreachable = errors.New("no route to host")

// fakeSources are instance metadata and Nodes. They record the requests.
type fakeSources struct {
	region, vpcID, nodeRegion string // "" for metadata that cannot be reached
	nodeErr                   error
	requests                  []string
}

func (f *fakeSources) answer(request, value string) (string, error) {
	f.requests = append(f.requests, request)
	if value == "" {
		return "", errUnreachable
	}
	return value, nil
}

func (f *fakeSources) Region(context.Context) (string, error) {
	return f.answer("metadata region", f.region)
}

func (f *fakeSources) VPCID(context.Context) (string, error) {
	return f.answer("metadata vpc", f.vpcID)
}

func (f *fakeSources) nodes(context.Context) (string, error) {
	f.requests = append(f.requests, "nodes")
	return f.nodeRegion, f.nodeErr
}

func TestFind(t *testing.T) {
	tests := map[string]struct {
		region, vpcID string // settings
		sources       fakeSources
		want          topology.Network
		requests      []string
	}{
		"settings need no request": {
			region: "eu-west-1", vpcID: "vpc-1", sources: fakeSources{region: "us-east-1", vpcID: "vpc-2", nodeRegion: "us-west-2"},
			want: topology.Network{Region: "eu-west-1", VPCID: "vpc-1"},
		},
		"metadata after settings": {
			sources: fakeSources{region: "us-east-1", vpcID: "vpc-2", nodeRegion: "us-west-2"},
			want:    topology.Network{Region: "us-east-1", VPCID: "vpc-2"}, requests: []string{"metadata region", "metadata vpc"},
		},
		"nodes last": {
			sources: fakeSources{nodeRegion: "us-west-2"},
			want:    topology.Network{Region: "us-west-2"}, requests: []string{"metadata region", "nodes", "metadata vpc"},
		},
		"region set: VPC is requested": {
			region: "eu-west-1", sources: fakeSources{vpcID: "vpc-2"},
			want: topology.Network{Region: "eu-west-1", VPCID: "vpc-2"}, requests: []string{"metadata vpc"},
		},
		"without an answer the VPC is empty": {
			region: "eu-west-1",
			want:   topology.Network{Region: "eu-west-1"}, requests: []string{"metadata vpc"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			sources := tt.sources
			got, err := (&topology.Finder{
				Region: tt.region, VPCID: tt.vpcID, Metadata: &sources, NodeRegion: sources.nodes,
				Log: slog.New(slog.NewTextHandler(&log, nil)),
			}).Find(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("network mismatch (-want +got):\n%s", diff)
			}
			if !slices.Equal(sources.requests, tt.requests) {
				t.Errorf("requests %q, want %q", sources.requests, tt.requests)
			}
			if logged := strings.Contains(log.String(), "set --vpc-id"); logged != (got.VPCID == "") {
				t.Errorf("the log is %q", log.String())
			}
		})
	}
}

func TestNoRegionIsAnError(t *testing.T) {
	sources := fakeSources{vpcID: "vpc-1"}
	_, err := (&topology.Finder{Metadata: &sources, NodeRegion: sources.nodes, Log: slog.New(slog.DiscardHandler)}).Find(t.Context())
	if err == nil || !errors.Is(err, errUnreachable) || !strings.Contains(err.Error(), "set --aws-region or AWS_REGION") {
		t.Errorf("got %v, want an error that says what to set, and why it is needed", err)
	}
	sources = fakeSources{nodeErr: context.Canceled}
	_, err = (&topology.Finder{Metadata: &sources, NodeRegion: sources.nodes, Log: slog.New(slog.DiscardHandler)}).Find(t.Context())
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

func TestFindGivesUpOnSilentMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		sources := fakeSources{nodeRegion: "us-west-2"}
		got, err := (&topology.Finder{Metadata: silent{}, NodeRegion: sources.nodes, Log: slog.New(slog.DiscardHandler)}).Find(t.Context())
		if err != nil || got.Region != "us-west-2" {
			t.Errorf("got %v, %v", got, err)
		}
		if waited := time.Since(begin); waited != 3*time.Second {
			t.Errorf("it took %s, want 3s for all requests", waited)
		}
	})
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
		if got := topology.DNSSuffix(region); got != want {
			t.Errorf("%s: got %q, want %q", region, got, want)
		}
	}
}
