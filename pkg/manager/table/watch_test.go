package table

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func TestVolumeMatters(t *testing.T) {
	ours, bound := claimed("v", "fs-1", 20490), claimed("v", "fs-1", 20490)
	bound.Status.Phase = corev1.VolumeBound
	foreign := &corev1.PersistentVolume{}
	root, _ := volumes.RootObjects("fs-1", 20490, namespace)
	released := root.DeepCopy()
	released.Status.Phase = corev1.VolumeReleased
	c := &Controller{}
	c.shown.Store(&plan{table: ports.Table{Targets: map[string]ports.Target{"fs-1": {Port: 20490}}}})
	tests := map[string]struct {
		before, after   *corev1.PersistentVolume
		matters, urgent bool
	}{
		"a new volume":                {nil, ours, true, false},
		"a new one of another port":   {nil, claimed("v", "fs-1", 20491), true, true},
		"a new one without a port":    {nil, claimed("v", "fs-2", 20490), true, true},
		"a new harmful one":           {nil, withOption(claimed("v", "fs-1", 20490), "bg"), true, true},
		"a volume that goes":          {ours, nil, true, false},
		"another port":                {ours, claimed("v", "fs-1", 20491), true, true},
		"another file system":         {ours, claimed("v", "fs-2", 20490), true, true},
		"a volume that is bound":      {ours, bound, false, false},
		"a harmful mount option":      {ours, withOption(claimed("v", "fs-1", 20490), "bg"), true, true},
		"a harmless mount option":     {ours, withOption(claimed("v", "fs-1", 20490), "noatime"), false, false},
		"a foreign volume":            {nil, foreign, false, false},
		"a root volume, whatever":     {root, released, true, true},
		"a root volume that goes":     {root, nil, true, true},
		"a root volume without class": {claimed(root.Name, "", 0), claimed(root.Name, "", 0), true, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := volumeMatters(tt.before, tt.after); got != tt.matters {
				t.Errorf("it matters: %v, want %v", got, tt.matters)
			}
			if got := c.volumeIsUrgent(tt.before, tt.after); got != tt.urgent {
				t.Errorf("it is urgent: %v, want %v", got, tt.urgent)
			}
		})
	}
}

func TestJobMatters(t *testing.T) {
	done, kept, runs := job(1, batchv1.JobComplete), job(1, batchv1.JobComplete, wellknown.FinalizerOutcome), job(1, batchv1.JobSuspended)
	strange := job(1, batchv1.JobComplete)
	strange.Labels = nil
	tests := map[string]struct {
		before, after *batchv1.Job
		want          bool
	}{
		"it ends":               {runs, done, true},
		"its outcome is used":   {kept, done, true},
		"it was over already":   {done, done, false},
		"its outcome is needed": {runs, kept, false},
		"it is none of ours":    {nil, strange, false},
		"it was there before":   {nil, done, true},
		"it is gone":            {done, nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := jobMatters(tt.before, tt.after); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// stubInformer keeps the handler that is added.
type stubInformer struct {
	cache.SharedIndexInformer
	cache.ResourceEventHandler
}

func (s *stubInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	s.ResourceEventHandler = h
	return nil, nil
}

func TestOnChangeIgnoresResyncsAndUnwrapsTombstones(t *testing.T) {
	acted, h := 0, &stubInformer{}
	if err := onChange(h, anyChange[*corev1.ConfigMap], func() { acted++ }); err != nil {
		t.Fatal(err)
	}
	first, second := configMap("a", nil), configMap("a", nil)
	first.ResourceVersion, second.ResourceVersion = "1", "2"
	h.OnAdd(first, false)
	h.OnUpdate(first, first)
	if acted != 1 {
		t.Errorf("acted %d times after an addition and a resync, want 1", acted)
	}
	h.OnUpdate(first, second)
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: second})
	if acted != 3 {
		t.Errorf("acted %d times, want 3", acted)
	}
}
