package topology_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"gnuthought.com/efs-stunnel/pkg/efs/topology"
)

// slowMetadata is a service that accepts requests and answers none of them before it is ready.
func slowMetadata(t *testing.T) (ready *atomic.Bool, requests *atomic.Int64) {
	t.Helper()
	ready, requests = &atomic.Bool{}, &atomic.Int64{}
	answers := map[string]string{
		"/latest/api/token":     "a-token",
		"/latest/meta-data/mac": "0e:49:61:0f:c3:11",
		"/latest/meta-data/network/interfaces/macs/0e:49:61:0f:c3:11/vpc-id": "vpc-0123456789abcdef0",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if !ready.Load() {
			<-r.Context().Done() // the client has given up
			return
		}
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
		fmt.Fprint(w, answers[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
	return ready, requests
}

func TestVPCIsRequestedUntilTheFirstAnswer(t *testing.T) {
	ready, requests := slowMetadata(t)
	var log bytes.Buffer
	finder := topology.Finder{
		Region: "us-east-1", Metadata: topology.MetadataFromConfig(aws.Config{}),
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	impatient := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if network, err := finder.Find(impatient()); err != nil || network.VPCID != "" {
		t.Fatalf("got %+v, %v, want no VPC yet", network, err)
	}
	for range 2 {
		if id := finder.LateVPC(impatient()); id != "" {
			t.Fatalf("got %q from a service that does not answer", id)
		}
	}
	ready.Store(true)
	id := ""
	for end := time.Now().Add(time.Minute); id == "" && time.Now().Before(end); { // each time has a few seconds
		id = finder.LateVPC(t.Context())
	}
	if id != "vpc-0123456789abcdef0" {
		t.Errorf("got %q", id)
	}
	before := requests.Load()
	if id := finder.LateVPC(t.Context()); id != "vpc-0123456789abcdef0" || requests.Load() != before {
		t.Errorf("got %q after %d more requests, want none", id, requests.Load()-before)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 ||
		strings.Count(log.String(), "is not known") != 1 || strings.Count(log.String(), "is known now") != 1 {
		t.Errorf("it logs %d lines:\n%s", lines, &log)
	}
}

func TestEachRequestForTheVPCIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finder := topology.Finder{Metadata: silent{}, Log: slog.New(slog.DiscardHandler)}
		for range 3 {
			begin := time.Now()
			if id := finder.LateVPC(t.Context()); id != "" {
				t.Errorf("got %q", id)
			}
			if waited := time.Since(begin); waited != 3*time.Second {
				t.Errorf("it took %s, want 3s", waited)
			}
		}
	})
}
