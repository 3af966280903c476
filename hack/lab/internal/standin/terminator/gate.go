package terminator

import "sync"

// gate makes goroutines wait while it is shut.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
	isOpen bool
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{}), isOpen: true}
	close(g.opened)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen {
		g.opened, g.isOpen = make(chan struct{}), false
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOpen {
		close(g.opened)
		g.isOpen = true
	}
}

// pass waits until the gate is open or the caller is done.
func (g *gate) pass(done <-chan struct{}) {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
	case <-done:
	}
}
