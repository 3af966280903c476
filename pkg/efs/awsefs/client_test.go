package awsefs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// server answers like the real API, in pages of one, and fails as in fail.
type server struct {
	fileSystems []map[string]any
	targets     map[string][]map[string]any
	points      []map[string]any
	fail        map[string]failure // by file system id, "" for the list of file systems
	hang        map[string]bool
}

type failure struct {
	status int
	code   string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("FileSystemId")
	if s.hang[id] {
		<-r.Context().Done()
		return
	}
	if f, ok := s.fail[id]; ok {
		w.Header().Set("x-amzn-ErrorType", f.code)
		w.WriteHeader(f.status)
		fmt.Fprintf(w, `{"ErrorCode":%q,"Message":"no"}`, f.code)
		return
	}
	switch {
	case r.Method != http.MethodGet:
		s.change(w, r)
	case strings.HasSuffix(r.URL.Path, "/access-points"):
		s.servePoints(w, r)
	case strings.HasSuffix(r.URL.Path, "/mount-targets"):
		s.page(w, r, "MountTargets", s.targets[id])
	case id != "":
		s.page(w, r, "FileSystems", s.fileSystems[:1])
	default:
		s.page(w, r, "FileSystems", s.fileSystems)
	}
}

func (s *server) page(w http.ResponseWriter, r *http.Request, key string, items []map[string]any) {
	at, _ := strconv.Atoi(cmp.Or(r.URL.Query().Get("Marker"), "0"))
	answer := map[string]any{key: items[min(at, len(items)):min(at+1, len(items))]}
	if at+1 < len(items) {
		answer["NextMarker"] = strconv.Itoa(at + 1)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func described(id string) map[string]any {
	return map[string]any{
		"FileSystemId": id, "OwnerId": "123456789012", "LifeCycleState": "available", "SizeInBytes": map[string]any{"Value": 4096},
		"Tags": []any{map[string]any{"Key": "Name", "Value": "name of " + id}},
	}
}

func describedTarget(id, fileSystem, address string) map[string]any {
	return map[string]any{
		"MountTargetId": id, "FileSystemId": fileSystem, "SubnetId": "subnet-1", "VpcId": "vpc-1", "LifeCycleState": "available",
		"AvailabilityZoneName": "us-east-1a", "AvailabilityZoneId": "use1-az1", "IpAddress": address,
	}
}

// observations counts calls by operation and result.
type observations struct {
	mu     sync.Mutex
	counts map[string]int
}

func (o *observations) observe(operation, result string, _ time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[operation+" "+result]++
}

func newClient(t *testing.T, s *server) (*Client, *observations) {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	seen := &observations{counts: make(map[string]int)}
	config := aws.Config{
		Region:       "us-east-1",
		BaseEndpoint: &web.URL,
		Credentials:  credentials.NewStaticCredentialsProvider("id", "secret", ""),
		Retryer:      func() aws.Retryer { return aws.NopRetryer{} },
	}
	return New(config, Options{
		CallTimeout: time.Minute, Parallel: 4, Observe: seen.observe, Now: time.Now,
	}), seen
}

func TestListingReadsAllPages(t *testing.T) {
	replica := described("fs-2")
	replica["AvailabilityZoneName"] = "us-east-1b"
	replica["FileSystemProtection"] = map[string]any{"ReplicationOverwriteProtection": "REPLICATING"}
	dualStack := describedTarget("fsmt-3", "fs-2", "10.0.0.2")
	dualStack["Ipv6Address"] = "fd00::2"
	client, seen := newClient(t, &server{
		fileSystems: []map[string]any{described("fs-1"), replica},
		targets: map[string][]map[string]any{
			"fs-1": {describedTarget("fsmt-1", "fs-1", "10.0.0.1"), describedTarget("fsmt-2", "fs-1", "10.0.1.1")},
			"fs-2": {dualStack, describedTarget("fsmt-4", "fs-2", "")},
		},
	})
	got, err := client.ListFileSystems(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	target := func(address string) efs.MountTarget {
		a, _ := netip.ParseAddr(address)
		return efs.MountTarget{
			SubnetID: "subnet-1", VPCID: "vpc-1", ZoneName: "us-east-1a", Address: a, State: efs.Available,
		}
	}
	wantDualStack := target("10.0.0.2")
	wantDualStack.IPv6 = netip.MustParseAddr("fd00::2")
	want := efs.Listing{Complete: true, Source: "123456789012/us-east-1", FileSystems: []efs.FileSystem{
		{
			ID: "fs-1", Name: "name of fs-1", State: efs.Available, SizeBytes: 4096, Tags: map[string]string{"Name": "name of fs-1"},
			MountTargets: []efs.MountTarget{target("10.0.0.1"), target("10.0.1.1")},
		},
		{
			ID: "fs-2", Name: "name of fs-2", State: efs.Available, SizeBytes: 4096, Tags: map[string]string{"Name": "name of fs-2"},
			AvailabilityZone: "us-east-1b", ReplicationDestination: true,
			MountTargets: []efs.MountTarget{wantDualStack, target("")},
		},
	}}
	ignore := cmpopts.IgnoreFields(efs.Listing{}, "ReadAt")
	if diff := gocmp.Diff(want, got, ignore, gocmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("listing (-want +got):\n%s", diff)
	}
	calls := map[string]int{"DescribeFileSystems success": 2, "DescribeMountTargets success": 4}
	if diff := gocmp.Diff(calls, seen.counts); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestOneUnreadableFileSystemLeavesTheOthers(t *testing.T) {
	client, seen := newClient(t, &server{
		fileSystems: []map[string]any{described("fs-1"), described("fs-2")},
		targets:     map[string][]map[string]any{"fs-2": {describedTarget("fsmt-3", "fs-2", "10.0.0.1")}},
		fail:        map[string]failure{"fs-1": {http.StatusBadRequest, "ThrottlingException"}},
	})
	got, err := client.ListFileSystems(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Complete || got.Failed["fs-1"] == nil || len(got.Failed) != 1 || len(got.FileSystems) != 2 || len(got.FileSystems[1].MountTargets) != 1 {
		t.Errorf("listing %+v, want fs-1 failed and fs-2 whole", got)
	}
	if seen.counts["DescribeMountTargets ThrottlingException"] != 1 {
		t.Errorf("calls %v", seen.counts)
	}
}

func TestAFailedListIsNoListing(t *testing.T) {
	client, seen := newClient(t, &server{fail: map[string]failure{"": {http.StatusForbidden, "AccessDeniedException"}}})
	got, err := client.ListFileSystems(t.Context())
	if err == nil || got.Complete || len(got.FileSystems) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if seen.counts["DescribeFileSystems AccessDeniedException"] != 1 {
		t.Errorf("calls %v", seen.counts)
	}
}

func TestACallThatHangsEndsInTime(t *testing.T) {
	client, seen := newClient(t, &server{hang: map[string]bool{"": true}})
	client.options.CallTimeout = 50 * time.Millisecond
	if _, err := client.ListFileSystems(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want deadline exceeded", err)
	}
	if seen.counts["DescribeFileSystems Timeout"] != 1 {
		t.Errorf("calls %v", seen.counts)
	}
}

func TestOnlyFileSystemNotFoundMeansGone(t *testing.T) {
	client, _ := newClient(t, &server{
		fileSystems: []map[string]any{described("fs-1")},
		fail: map[string]failure{
			"fs-gone":   {http.StatusNotFound, "FileSystemNotFound"},
			"fs-denied": {http.StatusForbidden, "AccessDeniedException"},
			"fs-broken": {http.StatusInternalServerError, "InternalServerError"},
			"fs-odd":    {http.StatusNotFound, "NotFound"},
		},
	})
	for id, want := range map[string]struct{ exists, fails bool }{
		"fs-1": {true, false}, "fs-gone": {false, false}, "fs-denied": {false, true}, "fs-broken": {false, true}, "fs-odd": {false, true},
	} {
		exists, err := client.FileSystemExists(t.Context(), id)
		if exists != want.exists || (err != nil) != want.fails {
			t.Errorf("%s: exists %v, %v", id, exists, err)
		}
	}
}

func TestTheSourceOfAListing(t *testing.T) {
	for name, c := range map[string]struct {
		owners map[string]bool
		want   string
	}{
		"no file system":        {nil, ""},
		"one account":           {map[string]bool{"123456789012": true}, "123456789012/eu-west-1"},
		"an API that says none": {map[string]bool{"": true}, ""},
		"two accounts":          {map[string]bool{"123456789012": true, "999999999999": true}, ""},
	} {
		if got := sourceOf(c.owners, "eu-west-1"); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
