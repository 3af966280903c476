package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/test/support/efstest"
)

// fakeMetadata is the nodes' VPC, "" while the service does not answer.
type fakeMetadata struct{ vpcID string }

func (*fakeMetadata) Region(context.Context) (string, error) { return "us-east-1", nil }

func (m *fakeMetadata) VPCID(context.Context) (string, error) {
	if m.vpcID == "" {
		return "", errors.New("no answer")
	}
	return m.vpcID, nil
}

func TestMountTargetsOfOtherVPCsAreLeftOutOnceTheVPCIsKnown(t *testing.T) {
	mount := func(vpcID, address string) efs.MountTarget {
		return efs.MountTarget{VPCID: vpcID, State: efs.Available, Address: netip.MustParseAddr(address)}
	}
	region := efstest.New(
		efs.FileSystem{ID: "fs-1", State: efs.Available, MountTargets: []efs.MountTarget{mount("vpc-1", "10.0.0.4"), mount("vpc-2", "10.2.0.4")}},
		efs.FileSystem{ID: "fs-2", State: efs.Available, MountTargets: []efs.MountTarget{mount("vpc-2", "10.2.0.5")}},
	)
	metadata := &fakeMetadata{}
	api := lateVPC{efsClient: region, finder: &topology.Finder{Metadata: metadata, Log: slog.New(slog.DiscardHandler)}}
	addresses := func() map[string][]string {
		listing, err := api.ListFileSystems(t.Context())
		if err != nil || !listing.Conclusive() {
			t.Fatalf("got %+v, %v", listing, err)
		}
		found := map[string][]string{}
		for _, fs := range listing.FileSystems {
			found[fs.ID] = []string{}
			for _, target := range fs.MountTargets {
				found[fs.ID] = append(found[fs.ID], target.Address.String())
			}
		}
		return found
	}
	if diff := cmp.Diff(map[string][]string{"fs-1": {"10.0.0.4", "10.2.0.4"}, "fs-2": {"10.2.0.5"}}, addresses()); diff != "" {
		t.Errorf("while it is not known: mismatch (-want +got):\n%s", diff)
	}
	metadata.vpcID = "vpc-1"
	if diff := cmp.Diff(map[string][]string{"fs-1": {"10.0.0.4"}, "fs-2": {}}, addresses()); diff != "" {
		t.Errorf("once it is known: mismatch (-want +got):\n%s", diff)
	}
	metadata.vpcID = ""
	if got := addresses()["fs-1"]; len(got) != 1 {
		t.Errorf("the VPC is not kept: %q", got)
	}
	region.FailList(errors.New("throttled"))
	if _, err := api.ListFileSystems(t.Context()); err == nil {
		t.Error("an error of the API is lost")
	}
}

// TestMetadataThatFailsAtTheStart uses the SDK's client: the service refuses at first, as while a node
// boots.
func TestMetadataThatFailsAtTheStart(t *testing.T) {
	withoutAWS(t)
	var ready atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() {
			http.Error(w, "not yet", http.StatusNotFound)
			return
		}
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
		fmt.Fprint(w, map[string]string{
			"/latest/api/token": "a-token", "/latest/meta-data/mac": "0e:49",
			"/latest/meta-data/network/interfaces/macs/0e:49/vpc-id": "vpc-1",
		}[r.URL.Path])
	}))
	defer server.Close()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
	w := newReplica(t, func(o *options) { o.region = "us-east-1" })
	api, network, err := w.efsAPI(t.Context())
	late, ok := api.(lateVPC)
	if err != nil || !ok || network.VPCID != "" {
		t.Fatalf("got %T, %+v, %v, want an API that requests the VPC again", api, network, err)
	}
	ready.Store(true)
	id := ""
	for end := time.Now().Add(time.Minute); id == "" && time.Now().Before(end); { // each time has a few seconds
		id = late.finder.LateVPC(t.Context())
	}
	if id != "vpc-1" {
		t.Errorf("got VPC %q", id)
	}
}
