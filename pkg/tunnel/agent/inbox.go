package agent

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
)

// inbox is what the world told last. Only the latest counts, so a burst of news is one.
type inbox struct {
	wake chan struct{} // holds one wish for a look

	mu   sync.Mutex
	news news // guarded by mu
}

type news struct {
	text    string // of the ConfigMap; "" when it has none
	heard   bool   // the apiserver has said something of the ConfigMap
	deleted bool   // it was there and is not any more, or never was

	node *corev1.Node // nil until known
	// metadata is the instance's own word; asked says that it had its chance.
	metadata routing.Place
	asked    bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (b *inbox) put(change func(*news)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.news)
	select {
	case b.wake <- struct{}{}:
	default: // somebody will look anyway
	}
}

func (b *inbox) get() news {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.news
}
