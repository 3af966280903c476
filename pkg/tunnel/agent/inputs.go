package agent

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
)

// inbox has the latest state of all watched objects. Changes that come together cause one sync.
type inbox struct {
	wake chan struct{} // holds at most one request to sync

	mu     sync.Mutex
	inputs inputs // guarded by mu
}

type inputs struct {
	table   string // of the ConfigMap; "" when it has none
	synced  bool   // the ConfigMap was listed, whether or not there is one
	deleted bool   // there is no ConfigMap

	node *corev1.Node // nil until known
	// metadata is from the instance metadata service; metadataTried says that it was requested.
	metadata      routing.Location
	metadataTried bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (b *inbox) put(change func(*inputs)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.inputs)
	select {
	case b.wake <- struct{}{}:
	default: // a sync is requested already
	}
}

func (b *inbox) get() inputs {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inputs
}
