package discovery

import (
	"slices"
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

	"gnuthought.com/efs-stunnel/pkg/efs/efstest"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

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
// volumes are healed. It fits again when file systems have gone.
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
		told := c.told()
		if got := slices.DeleteFunc(told, func(e string) bool { return !strings.Contains(e, "TableNotStored") }); len(got) != 1 {
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
