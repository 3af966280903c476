package table

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/efstest"
)

// TestClaimsReportATableThatCannotBeStored, those that wait for it, until it can.
func TestClaimsReportATableThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		var allowed atomic.Bool
		c := startWith(t, api, func(_ *Options, client *fake.Clientset) {
			client.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return !allowed.Load(), nil, apierrors.NewForbidden(corev1.Resource("configmaps"), wellknown.TargetsConfigMap, errBoom)
			})
		})
		if s := c.Snapshot(); s.Known || !strings.Contains(s.Problem, "ConfigMap efs-stunnel, which cannot be written") || !strings.Contains(s.Problem, "boom") {
			t.Errorf("got %+v", s)
		}
		allowed.Store(true)
		pass(5 * time.Minute)
		if s := c.Snapshot(); !s.Known || s.Problem != "" || s.Port("fs-1") == 0 {
			t.Errorf("got %+v", s)
		}
	})
}

// refuseLargeTables has the apiserver refuse what is too large.
func refuseLargeTables(client *fake.Clientset, most int) {
	refuse := func(action clienttesting.Action) (bool, runtime.Object, error) {
		writing, ok := action.(clienttesting.UpdateAction) // a creation is one, too
		if !ok {
			return false, nil, nil
		}
		object, ok := writing.GetObject().(*corev1.ConfigMap)
		if !ok || len(object.Data[wellknown.TargetsKey]) <= most {
			return false, nil, nil
		}
		return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), object.Name, nil)
	}
	client.PrependReactor("*", "configmaps", refuse)
}

// TestATableThatCannotBeStored keeps what is stored in force, also for a new leader, and its root
// volumes are repaired. It fits again when file systems have gone.
func TestATableThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"), fileSystem("fs-2", "a"))
		table := tableOf(map[string]ports.Target{"fs-1": target(20490), "fs-2": target(20491)})
		stored := tableMap(table)
		c := startWith(t, api, func(_ *Options, client *fake.Clientset) {
			refuseLargeTables(client, len(stored.Data[wellknown.TargetsKey]))
		}, stored)
		if s := c.Snapshot(); !s.Known || s.Port("fs-1") != 20490 || s.Port("fs-2") != 20491 {
			t.Errorf("snapshot %+v", s)
		}
		for id := range table.Targets {
			if _, err := c.client.CoreV1().PersistentVolumes().Get(t.Context(), "efs-stunnel-"+id, metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
		}
		pass(10 * time.Minute)
		events := c.newEvents()
		if got := slices.DeleteFunc(events, func(e string) bool { return !strings.Contains(e, "TableNotStored") }); len(got) != 1 {
			t.Errorf("events %q", got)
		}
		if got := c.ports(); len(got) != 2 {
			t.Errorf("ports %v", got)
		}
		api.Remove("fs-2")
		pass(10 * time.Minute)
		c.wantPorts(map[string]int{"fs-1": 20490})
	})
}

func TestNewest(t *testing.T) {
	at := func(version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
	tests := map[string]struct{ cached, known, want string }{
		"a cache that is behind":  {"9", "10", "10"},
		"a cache that is ahead":   {"11", "10", "11"},
		"versions without order":  {"x", "10", "x"},
		"the cache has caught up": {"10", "10", "10"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := newest(at(tt.cached), at(tt.known)).ResourceVersion; got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	if got := newest(at("9"), nil).ResourceVersion; got != "9" {
		t.Errorf("with nothing known: %s", got)
	}
}
