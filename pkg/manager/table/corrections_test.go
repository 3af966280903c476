package table

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// A restored cluster has much to correct, and one volume that cannot be written.
func TestAllPortsAreCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []runtime.Object{tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)}))}
		for i := range 250 {
			objects = append(objects, claimed(fmt.Sprintf("v-%03d", i), "fs-1", 20499))
		}
		c := start(t, nil, objects...)
		c.client.PrependReactor("patch", "persistentvolumes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			patch, ok := a.(clienttesting.PatchAction)
			return ok && patch.GetName() == "stubborn", nil, errBoom
		})
		c.volume(claimed("stubborn", "fs-1", 20499))
		pass(time.Minute)
		all, err := c.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range all.Items {
			if want := v.Name != "stubborn"; slices.Contains(v.Spec.MountOptions, "port=20490") != want {
				t.Errorf("%s has %v", v.Name, v.Spec.MountOptions)
			}
		}
		if !strings.Contains(c.log.String(), "correcting the port of volume stubborn: boom") {
			t.Error("the failure is nowhere")
		}
	})
}

// A volume that has changed since the decision waits for the next decision.
func TestPortsOfChangedVolumesAreNotCorrected(t *testing.T) {
	decided := claimed("v", "fs-1", 20499)
	correction := ports.Correction{Volume: "v", On: ports.Key{FileSystem: "fs-1"}, From: 20499, To: 20490}
	for name, c := range map[string]struct {
		now  *corev1.PersistentVolume
		want int
	}{
		"as it was":              {decided, 1},
		"deleted":                {nil, 0},
		"on another file system": {claimed("v", "fs-2", 20499), 0},
		"with another port":      {claimed("v", "fs-1", 20498), 0},
	} {
		got := planPorts([]ports.Correction{correction}, func(string) *corev1.PersistentVolume { return c.now }, nil)
		if len(got) != c.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
