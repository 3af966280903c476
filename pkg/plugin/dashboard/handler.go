// Package dashboard serves the state of an installation as a page that refreshes itself, for one user on
// the loopback. It reads only.
package dashboard

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
)

// Gather reads the cluster.
type Gather func(context.Context) (*inspect.Snapshot, error)

// Handler serves the page below a path that cannot be guessed: other users of the machine can connect to
// the loopback, too, and the page shows what its user may read.
type Handler struct {
	gather Gather
	hosts  []string
	path   string

	mu   sync.Mutex
	last page      // guarded by mu
	read time.Time // guarded by mu; when last was read
}

// New is a handler for a server with an address and port of the loopback.
func New(address string, port string, gather Gather) *Handler {
	return &Handler{gather: gather, hosts: []string{address + ":" + port, "localhost:" + port}, path: "/" + rand.Text() + "/"}
}

// URL is where the page is.
func (h *Handler) URL() string { return "http://" + h.hosts[0] + h.path }

// fresh is how long a page serves more than one request: several tabs must not multiply the load.
const fresh = 3 * time.Second

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Host != h.hosts[0] && r.Host != h.hosts[1]: // a name that an attacker has resolve to 127.0.0.1
		http.Error(w, "the page is at 127.0.0.1 or localhost only", http.StatusForbidden)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "the page is read-only", http.StatusMethodNotAllowed)
		return
	case subtle.ConstantTimeCompare([]byte(r.URL.Path), []byte(h.path)) != 1:
		http.NotFound(w, r)
		return
	}
	p := h.page(r.Context())
	p.Nonce = rand.Text()
	var text bytes.Buffer
	if err := p.write(&text); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	setHeaders(w.Header(), p.Nonce)
	if p.Error != "" {
		w.WriteHeader(http.StatusBadGateway)
	}
	_, _ = w.Write(text.Bytes()) // the browser may be gone
}

func setHeaders(header http.Header, nonce string) {
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+nonce+"'; script-src 'nonce-"+nonce+
		"'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// page reads the cluster unless that was just done.
func (h *Handler) page(ctx context.Context) page {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.read) < fresh {
		return h.last
	}
	snapshot, err := h.gather(ctx)
	if err != nil {
		return page{Error: inspect.Line(err.Error())}
	}
	h.last, h.read = newPage(snapshot), time.Now()
	return h.last
}
