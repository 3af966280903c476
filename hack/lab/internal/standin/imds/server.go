// Package imds is an instance metadata service, version 2 only, in which each node is an EC2 instance.
package imds

import (
	"crypto/rand"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

const (
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	longestTTL  = 21600 // seconds
)

// Options are the settings of a server.
type Options struct {
	Inventory       *inventory.Store
	Region          string
	AccountID       string
	VPCID           string
	AccessKeyID     string
	SecretAccessKey string
	Now             func() time.Time
	Log             *slog.Logger
}

// Server is the service's HTTP handler.
type Server struct {
	Options
	mu     sync.Mutex
	tokens map[string]token // guarded by mu
}

// token lets one client read until it expires.
type token struct {
	client  netip.Addr
	expires time.Time
}

// New makes a server.
func New(o Options) *Server {
	return &Server{Options: o, tokens: map[string]token{}}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	address := client.Addr().Unmap()
	if r.URL.Path == "/latest/api/token" {
		s.serveToken(w, r, address)
		return
	}
	s.serveMetadata(w, r, address)
}

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request, client netip.Addr) {
	if r.Method != http.MethodPut {
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.Header.Get("X-Forwarded-For") != "" {
		http.Error(w, "Forbidden", http.StatusForbidden)
		return
	}
	ttl, err := strconv.Atoi(r.Header.Get(ttlHeader))
	if err != nil || ttl < 1 || ttl > longestTTL {
		http.Error(w, "Bad Request: "+ttlHeader+" must be a number from 1 to "+strconv.Itoa(longestTTL), http.StatusBadRequest)
		return
	}
	w.Header().Set(ttlHeader, strconv.Itoa(ttl))
	s.write(w, s.issue(client, time.Duration(ttl)*time.Second))
}

func (s *Server) issue(client netip.Addr, ttl time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	maps.DeleteFunc(s.tokens, func(_ string, t token) bool { return !now.Before(t.expires) })
	text := rand.Text()
	s.tokens[text] = token{client, now.Add(ttl)}
	return text
}

func (s *Server) allows(text string, client netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tokens[text]
	return ok && t.client == client && s.Now().Before(t.expires)
}

func (s *Server) serveMetadata(w http.ResponseWriter, r *http.Request, client netip.Addr) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if !s.allows(r.Header.Get(tokenHeader), client) {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	node, ok := s.Inventory.Snapshot().NodeOf(client)
	if !ok {
		s.Log.Warn("metadata requested from an address of no node", "address", client.String())
		http.NotFound(w, r)
		return
	}
	answer, ok := lookup(s.tree(node), strings.TrimPrefix(r.URL.Path, "/latest"))
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	s.write(w, answer)
}

func (s *Server) write(w http.ResponseWriter, text string) {
	if _, err := w.Write([]byte(text)); err != nil {
		s.Log.Debug("sending metadata failed", "err", err)
	}
}

// lookup reads an entry, or lists a folder: one name per line, folders with a slash at the end.
func lookup(tree map[string]string, path string) (string, bool) {
	if value, ok := tree[path]; ok {
		return value, true
	}
	folder := strings.TrimSuffix(path, "/") + "/"
	names := map[string]bool{}
	for entry := range tree {
		rest, inside := strings.CutPrefix(entry, folder)
		if !inside {
			continue
		}
		name, _, isFolder := strings.Cut(rest, "/")
		if isFolder {
			name += "/"
		}
		names[name] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), "\n"), len(names) > 0
}
