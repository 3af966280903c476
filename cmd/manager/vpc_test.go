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

	"gnuthought.com/efs-stunnel/pkg/awsplace"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/efs/efstest"
)

// metadataOf is the nodes' VPC, "" as long as it cannot be had.
type metadataOf struct{ vpcID string }

func (*metadataOf) Region(context.Context) (string, error) { return "us-east-1", nil }

func (m *metadataOf) VPCID(context.Context) (string, error) {
	if m.vpcID == "" {
		return "", errors.New("no answer")
	}
	return m.vpcID, nil
}

func TestMountTargetsOfOtherVPCsGoOnceTheVPCIsKnown(t *testing.T) {
	mount := func(vpcID, address string) efs.MountTarget {
		return efs.MountTarget{ID: "fsmt-" + address, VPCID: vpcID, State: efs.Available, Address: netip.MustParseAddr(address)}
	}
	region := efstest.New(
		efs.FileSystem{ID: "fs-1", State: efs.Available, MountTargets: []efs.MountTarget{mount("vpc-1", "10.0.0.4"), mount("vpc-2", "10.2.0.4")}},
		efs.FileSystem{ID: "fs-2", State: efs.Available, MountTargets: []efs.MountTarget{mount("vpc-2", "10.2.0.5")}},
	)
	metadata := &metadataOf{}
	api := lateVPC{API: region, vpc: awsplace.Finder{Metadata: metadata, Log: slog.New(slog.DiscardHandler)}.LateVPC()}
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
		t.Errorf("it forgets the VPC: %q", got)
	}
	region.FailList(errors.New("throttled"))
	if _, err := api.ListFileSystems(t.Context()); err == nil {
		t.Error("an error of the API is lost")
	}
}

// TestMetadataThatIsSlowAtTheStart has the whole way from the SDK's client to the listing: the
// service refuses at first, as while a node boots.
func TestMetadataThatIsSlowAtTheStart(t *testing.T) {
	withoutAWS(t)
	var awake atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !awake.Load() {
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
	w := newWorld(t, func(o *options) { o.region = "us-east-1" })
	api, place, err := w.efsAPI(t.Context())
	late, ok := api.(lateVPC)
	if err != nil || !ok || place.VPCID != "" {
		t.Fatalf("got %T, %+v, %v, want an API that asks on", api, place, err)
	}
	awake.Store(true)
	id := ""
	for end := time.Now().Add(time.Minute); id == "" && time.Now().Before(end); { // each time has a few seconds
		id = late.vpc.ID(t.Context())
	}
	if id != "vpc-1" {
		t.Errorf("got VPC %q", id)
	}
}
