package table

import (
	"math/rand/v2"
	"strings"
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

func (c *cluster) view() *corev1.ConfigMap {
	c.t.Helper()
	view, err := c.client.CoreV1().ConfigMaps(namespace).Get(c.t.Context(), wellknown.ViewConfigMap, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return view
}

// wantView expects the view of the stored table.
func (c *cluster) wantView() {
	c.t.Helper()
	table := c.configMap()
	if text, err := ports.ReadView(c.view(), table); err != nil || text != table.Data[wellknown.TargetsKey] {
		c.t.Errorf("the view has %q, %v", text, err)
	}
}

func TestTheViewFollowsTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		c := start(t, api)
		c.wantView()
		before := c.view()
		pass(time.Hour)
		if after := c.view(); after.ResourceVersion != before.ResourceVersion {
			t.Error("it is written although nothing changes")
		}
		api.Put(fileSystem("fs-2", "a"))
		pass(time.Hour)
		c.wantPorts(map[string]int{"fs-1": 20490, "fs-2": 20491})
		c.wantView()
	})
}

// TestTheViewOfAnUnreadableTable is written, too: a read of the whole by every agent would not help.
func TestTheViewOfAnUnreadableTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, efstest.New(), configMap(wellknown.TargetsConfigMap, map[string]string{wellknown.TargetsKey: "a: ["}))
		c.wantView()
	})
}

// TestATableThatCannotBeCompressed has no view, which is tried and logged once.
func TestATableThatCannotBeCompressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random, text := rand.New(rand.NewPCG(1, 2)), make([]byte, 1<<20)
		for i := range text {
			text[i] = byte(random.Uint32())
		}
		c := start(t, efstest.New(), configMap(wellknown.TargetsConfigMap, map[string]string{wellknown.TargetsKey: string(text)}))
		pass(time.Hour)
		if got := strings.Count(c.log.String(), "loop=view"); got != 1 {
			t.Errorf("%d lines of the log about it:\n%s", got, c.log.String())
		}
	})
}

// TestAnotherViewIsReplaced: one of a leader that ended before it wrote the view of its table, and what others wrote.
func TestAnotherViewIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		earlier := configMap(wellknown.TargetsConfigMap, map[string]string{wellknown.TargetsKey: "efs_stunnel_targets: {}"})
		view, err := ports.NewView(earlier)
		if err != nil {
			t.Fatal(err)
		}
		view.Annotations = map[string]string{"kept": "yes"}
		stored := tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)}))
		stored.ResourceVersion = "999"
		c := start(t, efstest.New(fileSystem("fs-1", "a")), stored, view)
		c.wantView()
		garbage := c.view()
		garbage.BinaryData = nil
		if _, err := c.client.CoreV1().ConfigMaps(namespace).Update(t.Context(), garbage, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(viewInterval)
		c.wantView()
		if c.view().Annotations["kept"] != "yes" {
			t.Error("what others added is gone")
		}
	})
}

// TestTheTableIsInForceWithoutItsView: agents read the table itself.
func TestTheTableIsInForceWithoutItsView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startWith(t, efstest.New(fileSystem("fs-1", "a")), func(_ *Options, client *fake.Clientset) {
			client.PrependReactor("get", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
				get, ok := action.(clienttesting.GetAction)
				refused := ok && get.GetName() == wellknown.ViewConfigMap
				return refused, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), wellknown.ViewConfigMap, errBoom)
			})
		})
		if s := c.Snapshot(); !s.Known || s.Port("fs-1") != 20490 {
			t.Errorf("got %+v", s)
		}
	})
}
