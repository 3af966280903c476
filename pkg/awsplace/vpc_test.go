package awsplace_test

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

	"gnuthought.com/efs-stunnel/pkg/awsplace"
)

// slowMetadata is a service that takes requests and answers none of them before it is awake.
func slowMetadata(t *testing.T) (awake *atomic.Bool, asked *atomic.Int64) {
	t.Helper()
	awake, asked = &atomic.Bool{}, &atomic.Int64{}
	answers := map[string]string{
		"/latest/api/token":     "a-token",
		"/latest/meta-data/mac": "0e:49:61:0f:c3:11",
		"/latest/meta-data/network/interfaces/macs/0e:49:61:0f:c3:11/vpc-id": "vpc-0123456789abcdef0",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if !awake.Load() {
			<-r.Context().Done() // the client has given up
			return
		}
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
		fmt.Fprint(w, answers[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
	return awake, asked
}

func TestSlowMetadataIsAskedAgain(t *testing.T) {
	awake, asked := slowMetadata(t)
	var log bytes.Buffer
	finder := awsplace.Finder{
		Region: "us-east-1", Metadata: awsplace.InstanceMetadata(aws.Config{}),
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	hurried := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if place, err := finder.Find(hurried()); err != nil || place.VPCID != "" {
		t.Fatalf("got %+v, %v, want no VPC yet", place, err)
	}
	vpc := finder.LateVPC()
	for range 2 {
		if id := vpc.ID(hurried()); id != "" {
			t.Fatalf("got %q from a service that does not answer", id)
		}
	}
	awake.Store(true)
	id := ""
	for end := time.Now().Add(time.Minute); id == "" && time.Now().Before(end); { // each time has a few seconds
		id = vpc.ID(t.Context())
	}
	if id != "vpc-0123456789abcdef0" {
		t.Errorf("got %q", id)
	}
	before := asked.Load()
	if id := vpc.ID(t.Context()); id != "vpc-0123456789abcdef0" || asked.Load() != before {
		t.Errorf("got %q after %d more questions, want none", id, asked.Load()-before)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 ||
		strings.Count(log.String(), "is not known") != 1 || strings.Count(log.String(), "is known now") != 1 {
		t.Errorf("it says in %d lines:\n%s", lines, &log)
	}
}

func TestEachQuestionForTheVPCIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vpc := awsplace.Finder{Metadata: silent{}, Log: slog.New(slog.DiscardHandler)}.LateVPC()
		for range 3 {
			begin := time.Now()
			if id := vpc.ID(t.Context()); id != "" {
				t.Errorf("got %q", id)
			}
			if waited := time.Since(begin); waited != 3*time.Second {
				t.Errorf("it took %s, want 3s", waited)
			}
		}
	})
}
