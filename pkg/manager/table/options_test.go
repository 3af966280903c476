package table

import (
	"testing"

	"k8s.io/client-go/kubernetes/fake"
)

func TestBadOptionsAreRefused(t *testing.T) {
	for name, edit := range map[string]func(*Options){
		"no namespace": func(o *Options) { o.Namespace = "" },
		"no interval":  func(o *Options) { o.PollingInterval = 0 },
		"no port":      func(o *Options) { o.Range.Count = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			edit(&o)
			if _, err := New(fake.NewClientset(), nil, nil, o); err == nil {
				t.Error("accepted")
			}
		})
	}
}
