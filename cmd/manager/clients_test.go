package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/clock"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/forbidden"
)

func makeClients(t *testing.T, host string) (clients, *client.Program) {
	t.Helper()
	p := client.New(metricsNamespace, slog.New(slog.DiscardHandler))
	o := defaults()
	o.qps, o.burst = 7, 9
	c, err := newClients(&rest.Config{Host: host}, o, p, clock.New(metricsNamespace, time.Now, slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

func TestClientsHaveLimitsOfTheirOwn(t *testing.T) {
	c, _ := makeClients(t, "http://127.0.0.1:1")
	limiter := func(client kubernetes.Interface) float32 {
		return client.CoreV1().RESTClient().GetRateLimiter().QPS()
	}
	for name, client := range map[string]kubernetes.Interface{"loops": c.work, "mount Jobs": c.jobs, "bindings": c.bindings} {
		if got := limiter(client); got != 7 {
			t.Errorf("the client of %s has %g requests per second, want what was set, 7", name, got)
		}
	}
	if limiter(c.warnings) != eventQPS || limiter(c.events) != eventQPS || limiter(c.lease) != leaseQPS {
		t.Errorf("warnings %g, events %g, lease %g: want limits of their own", limiter(c.warnings), limiter(c.events), limiter(c.lease))
	}
	// Work must not use up what the Lease needs.
	for range 20 {
		c.work.CoreV1().RESTClient().GetRateLimiter().TryAccept()
	}
	for name, client := range map[string]kubernetes.Interface{"lease": c.lease, "mount Jobs": c.jobs, "bindings": c.bindings} {
		if !client.CoreV1().RESTClient().GetRateLimiter().TryAccept() {
			t.Errorf("the %s wait for the loops' requests", name)
		}
	}
}

// TestEveryClientMeasuresTheClock: the manager's is an hour behind.
func TestEveryClientMeasuresTheClock(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	for name, of := range map[string]func(clients) kubernetes.Interface{
		"work":     func(c clients) kubernetes.Interface { return c.work },
		"jobs":     func(c clients) kubernetes.Interface { return c.jobs },
		"bindings": func(c clients) kubernetes.Interface { return c.bindings },
		"events":   func(c clients) kubernetes.Interface { return c.events },
		"warnings": func(c clients) kubernetes.Interface { return c.warnings },
		"lease":    func(c clients) kubernetes.Interface { return c.lease },
	} {
		t.Run(name, func(t *testing.T) {
			w := newReplica(t, nil)
			c, err := newClients(&rest.Config{Host: server.URL}, defaults(), w.program, w.clock)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := of(c).CoordinationV1().Leases("efs-stunnel").Get(t.Context(), "efs-manager", metav1.GetOptions{}); err == nil {
				t.Fatal("the apiserver has no such Lease")
			}
			w.events = w.program.StartEvents(w.client, w.client)
			defer w.events.Close(events.FlushTimeout)
			if ahead := time.Until(w.loopOptions("", topology.Network{}).Now()); (ahead - time.Hour).Abs() > time.Minute {
				t.Errorf("the loops' clock is %s ahead of the manager's, want an hour", ahead)
			}
			if _, body := w.get(t, "/metrics"); !strings.Contains(body, "efs_stunnel_manager_clock_offset_seconds -3") {
				t.Errorf("no metric in\n%s", body)
			}
		})
	}
}

// TestMissingPermissionIsReported uses a real client and a real message of the apiserver.
func TestMissingPermissionIsReported(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,`+
			`"message":"nodes is forbidden: User \"u\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"}`)
	}))
	defer server.Close()
	w := newReplica(t, nil)
	w.clients, w.program = makeClients(t, server.URL)
	if _, err := w.clients.work.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Fatal("the refusal did not reach the caller")
	}
	code, body := w.get(t, "/readyz")
	if want := "[-] rights: the service account may not list nodes: its ClusterRole or Role does not grant it"; code != 503 || !strings.Contains(body, want) {
		t.Errorf("got %d and\n%s\nwant %q", code, body, want)
	}
}

func TestPermissionsThatReadinessNeeds(t *testing.T) {
	tests := map[string]struct {
		permission forbidden.Permission
		want       bool
	}{
		"a cache's list":  {forbidden.Permission{Verb: "list", Resource: "nodes"}, true},
		"a cache's watch": {forbidden.Permission{Verb: "watch", Resource: "nodes"}, true},
		"the lease":       {forbidden.Permission{Verb: "update", Group: "coordination.k8s.io", Resource: "leases"}, true},
		"a SharedVolume":  {forbidden.Permission{Verb: "list", Group: "efs-stunnel.gnuthought.com", Resource: "sharedvolumes"}, false},
		"an event":        {forbidden.Permission{Verb: "create", Resource: "events"}, false},
		"a Job":           {forbidden.Permission{Verb: "create", Group: "batch", Resource: "jobs"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := neededToLead(tt.permission); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}
