package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
)

// withoutAWS hides what the machine of the test knows of AWS.
func withoutAWS(t *testing.T) {
	t.Helper()
	nothing := filepath.Join(t.TempDir(), "nothing")
	for key, value := range map[string]string{
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_PROFILE": "", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": nothing, "AWS_SHARED_CREDENTIALS_FILE": nothing,
	} {
		t.Setenv(key, value)
	}
}

func TestRegion(t *testing.T) {
	labelled := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"topology.kubernetes.io/region": "us-west-2"}}}
	tests := map[string]struct {
		setting, sdk string
		nodes        []*corev1.Node
		want         string // "" for an error
	}{
		"the setting":       {"eu-west-1", "us-east-1", []*corev1.Node{labelled}, "eu-west-1"},
		"the SDK":           {"", "us-east-1", []*corev1.Node{labelled}, "us-east-1"},
		"a node with label": {"", "", []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, labelled}, "us-west-2"},
		"no source":         {"", "", []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			withoutAWS(t)
			t.Setenv("AWS_DEFAULT_REGION", tt.sdk)
			w := newReplica(t, func(o *options) { o.region, o.loops.VPCID = tt.setting, "vpc-1" })
			for _, node := range tt.nodes {
				if err := w.client.Tracker().Add(node); err != nil {
					t.Fatal(err)
				}
			}
			api, got, err := w.efsAPI(t.Context())
			if tt.want == "" {
				if err == nil {
					t.Errorf("got %+v, want an error", got)
				}
				return
			}
			if diff := cmp.Diff(topology.Network{Region: tt.want, VPCID: "vpc-1"}, got); err != nil || api == nil || diff != "" {
				t.Errorf("%v, network mismatch (-want +got):\n%s", err, diff)
			}
		})
	}
}

// stsVariable has this program ask for credentials by a token, and do nothing else.
const stsVariable = "EFS_STUNNEL_TEST_STS"

// TestRegionOfCredentials: clients for credentials have the region that only a node's label says. The child's
// proxy is the test, so that nothing leaves the machine.
func TestRegionOfCredentials(t *testing.T) {
	if os.Getenv(stsVariable) != "" {
		askForCredentials(t)
		return
	}
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Host
		http.Error(w, "there is no AWS", http.StatusBadGateway)
	}))
	defer proxy.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), stsVariable+"=1", "HTTPS_PROXY="+proxy.URL, "NO_PROXY=")
	ended := make(chan string, 1)
	go func() {
		output, err := child.CombinedOutput()
		ended <- fmt.Sprintf("%v: %s", err, output)
	}()
	select {
	case host := <-asked:
		if host != "sts.us-west-2.amazonaws.com:443" {
			t.Errorf("asked %s, want STS of the node's region", host)
		}
		cancel()
		<-ended
	case how := <-ended:
		t.Errorf("nobody was asked: %s", how)
	}
}

func askForCredentials(t *testing.T) {
	withoutAWS(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/efs-manager")
	w := newReplica(t, func(o *options) { o.loops.VPCID = "vpc-1" })
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{corev1.LabelTopologyRegion: "us-west-2"}}}
	if err := w.client.Tracker().Add(node); err != nil {
		t.Fatal(err)
	}
	api, _, err := w.efsAPI(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.ListFileSystems(t.Context())
	t.Fatal(err) // there is no answer
}

func TestPinnedTargetsNeedNoAWS(t *testing.T) {
	withoutAWS(t)
	w := newReplica(t, func(o *options) { o.discovery = wellknown.DiscoveryNone })
	api, network, err := w.efsAPI(t.Context())
	if err != nil || api != nil || network != (topology.Network{}) {
		t.Errorf("got %v, %+v, %v; want nothing at all", api, network, err)
	}
	if actions := w.client.Actions(); len(actions) > 0 {
		t.Errorf("it requested %v", actions)
	}
}

func TestLoopsGetTheSettings(t *testing.T) {
	w := newReplica(t, func(o *options) {
		o.loops.Filter.IDs, o.loops.Threshold, o.loops.PollingInterval = []string{"fs-1"}, 5, 90*time.Second
		o.loops.Aliases = map[string][]string{"fs-2": {"fs-1"}}
	})
	w.events = w.program.StartEvents(w.client, w.client)
	defer w.events.Close(events.FlushTimeout)
	got := w.loopOptions("the-cluster", topology.Network{Region: "cn-north-1", VPCID: "vpc-1"})
	if got.Cluster != "the-cluster" || got.DNSSuffix != "efs.cn-north-1.amazonaws.com.cn" || got.VPCID != "vpc-1" ||
		got.Threshold != 5 || got.PollingInterval != 90*time.Second || got.Batch != 512 || got.Backoff != time.Minute ||
		got.Provisioner != wellknown.DefaultProvisioner || got.Range.Base != 20490 || got.Events == nil || got.Metrics == nil || got.Log == nil {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(efs.Filter{IDs: []string{"fs-1"}}, got.Filter); diff != "" {
		t.Errorf("filter mismatch (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(w.options.loops.Jobs, got.Jobs); diff != "" {
		t.Errorf("Job settings mismatch (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{"fs-2": {"fs-1"}}, got.Aliases); diff != "" {
		t.Errorf("aliases mismatch (-want +got):\n%s", diff)
	}
	if got := w.loopOptions("c", topology.Network{}); got.DNSSuffix != "" {
		t.Errorf("without a region names end in %q, want nothing", got.DNSSuffix)
	}
}

// TestRealLoopsRun has the whole replica come up on a fake cluster with pinned targets only.
func TestRealLoopsRun(t *testing.T) {
	w := newReplica(t, func(o *options) { o.discovery = wellknown.DiscoveryNone })
	stop, result := w.start(t, func(ctx context.Context) (workload, error) {
		made, err := w.wire(ctx)
		wired := made.loops
		made.loops = loopFunc(func(ctx context.Context) error {
			w.add("loop starts")
			return wired.Run(ctx)
		})
		return made, err
	})
	w.await(t, "loop starts")
	if code, body := w.get(t, "/readyz"); code != 200 {
		t.Errorf("readyz answers %d and\n%s", code, body)
	}
	stop()
	if err := end(t, result); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
}

// TestQueuesHaveTheMetricOfTheLongestSync holds the health check to the names that the library gives.
func TestQueuesHaveTheMetricOfTheLongestSync(t *testing.T) {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "held-by-a-test"})
	defer queue.ShutDown()
	families, err := prometheus.Gatherer(legacyregistry.DefaultGatherer).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != longestSync {
			continue
		}
		for _, metric := range family.GetMetric() {
			if labels := metric.GetLabel(); len(labels) == 1 && labels[0].GetValue() == "held-by-a-test" {
				return
			}
		}
	}
	t.Errorf("no queue is in %s", longestSync)
}
