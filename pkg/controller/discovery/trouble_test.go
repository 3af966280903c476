package discovery

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/efs/efstest"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestATableThatCannotBeStoredIsTold to the claims that wait for it, until it can.
func TestATableThatCannotBeStoredIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		var allowed atomic.Bool
		c := startWith(t, api, func(_ *Options, client *fake.Clientset) {
			client.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return !allowed.Load(), nil, apierrors.NewForbidden(corev1.Resource("configmaps"), wellknown.TargetsConfigMap, errBoom)
			})
		})
		if s := c.Snapshot(); s.Known || !strings.Contains(s.Trouble, "ConfigMap efs-stunnel, which cannot be written") || !strings.Contains(s.Trouble, "boom") {
			t.Errorf("got %+v", s)
		}
		allowed.Store(true)
		pass(5 * time.Minute)
		if s := c.Snapshot(); !s.Known || s.Trouble != "" || s.Port("fs-1") == 0 {
			t.Errorf("got %+v", s)
		}
	})
}
