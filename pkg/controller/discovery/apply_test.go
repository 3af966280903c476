package discovery

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

// A restored cluster has more to correct than one sync does, and one volume that refuses.
func TestAllPortsAreCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []runtime.Object{tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)}))}
		for i := range maxCorrections + 50 {
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
