// Package dashboard serves the state of an installation as a page that refreshes itself, for one user on
// the loopback. It reads only.
package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed" // the page
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
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

// New returns a handler for a server on an address with a port, of the loopback.
func New(address string, gather Gather) *Handler {
	port := address[strings.LastIndexByte(address, ':'):]
	return &Handler{gather: gather, hosts: []string{address, "localhost" + port}, path: "/" + rand.Text() + "/"}
}

// URL returns where the page is.
func (h *Handler) URL() string { return "http://" + h.hosts[0] + h.path }

// fresh bounds the time in which a page serves more than one request: several tabs must not multiply the load.
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
	p := h.page(r.Context()).search(r.URL.Query().Get("q"))
	p.Nonce = rand.Text()
	var text bytes.Buffer
	if err := pageTemplate.Execute(&text, p); err != nil {
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
		return page{Error: printing.Line(err.Error())}
	}
	h.last, h.read = newPage(snapshot), time.Now()
	return h.last
}

//go:embed page.html
var source string

var functions = template.FuncMap{"size": printing.Size, "first": first[string], "age": age, "sweep": inspect.SweepText}

var pageTemplate = template.Must(template.New("page").Funcs(functions).Parse(source))

const mostRows = 50

// page has what the template shows, and escapes. Texts of objects are lines without control characters.
type page struct {
	Nonce  string
	Error  string
	Now    time.Time
	Status inspect.Status

	// The beginnings of what Status has.
	Entries []inspect.Entry // one for each cause
	Claims  []inspect.Claim
	Shared  []inspect.SharedVolume
	Jobs    []inspect.Job

	Numbers []number
	Paths   []path
	Claimed []inspect.ClaimUsage // all claims with what they hold; after search, the first of those that it finds
	Found   int
	Events  []event

	HiddenEntries, HiddenPaths int
}

type event struct {
	Age, Object, Reason, Message string
	Warning                      bool
}

// newPage draws nothing but what the snapshot says.
func newPage(s *inspect.Snapshot) page {
	status := inspect.NewStatus(s)
	printing.Clean(&status)
	entries, usage := inspect.Entries(status.Problems), inspect.NewUsage(s, "")
	paths := newPaths(s, status)
	printing.Clean(&usage)
	printing.Clean(&paths)
	p := page{
		Status: status, Now: s.Now.UTC(), Numbers: newNumbers(s, status, len(usage.Claims)),
		Entries: first(entries), Claims: first(status.Claims), Shared: first(status.SharedVolumes), Jobs: first(status.Jobs),
		Paths: first(paths), Claimed: usage.Claims,
	}
	p.HiddenEntries, p.HiddenPaths = len(entries)-len(p.Entries), len(paths)-len(p.Paths)
	events := slices.DeleteFunc(s.OurEvents(), func(e *corev1.Event) bool { return e.Type != corev1.EventTypeWarning && !inspect.IsOurs(*e) })
	for _, e := range first(events) {
		p.Events = append(p.Events, newEvent(e, s.Now))
	}
	return p
}

// search keeps the claims that have a text in the name of their namespace, their file system or their volume.
func (p page) search(text string) page {
	p.Claimed = slices.DeleteFunc(slices.Clone(p.Claimed), func(c inspect.ClaimUsage) bool {
		return !strings.Contains(c.Namespace+"/"+c.Claim+" "+c.FileSystem+" "+c.Volume, text)
	})
	p.Found, p.Claimed = len(p.Claimed), first(p.Claimed)
	return p
}

func first[T any](all []T) []T { return all[:min(len(all), mostRows)] }

// health sorts nodes with a problem to the front.
func health(a inspect.Agent) int {
	switch {
	case !a.Ready:
		return 0
	case !a.Healthy():
		return 1
	}
	return 2
}

func newEvent(e *corev1.Event, now time.Time) event {
	about := e.InvolvedObject
	object := about.Kind + " " + strings.TrimPrefix(about.Namespace+"/"+about.Name, "/")
	shown := event{age(now, mountjobs.LastSeen(*e)), object, e.Reason, e.Message, e.Type == corev1.EventTypeWarning}
	printing.Clean(&shown)
	return shown
}

func age(now, then time.Time) string { return duration.HumanDuration(max(now.Sub(then), 0)) }

// Docs returns where to look for what the page does not explain.
func (page) Docs() string { return wellknown.DocsURL + "troubleshoot/six-steps.md" }

// Steps splits a remedy into words, commands and addresses of pages.
func (page) Steps(remedy string) []string {
	const command, address = "kubectl ", wellknown.DocsURL
	return strings.Split(strings.NewReplacer("; ", "\n", ": "+command, ":\n"+command, ": "+address, ":\n"+address).Replace(remedy), "\n")
}

// IsCommand reports whether a step can be copied to a shell.
func (page) IsCommand(step string) bool {
	return strings.HasPrefix(step, "kubectl ") && !strings.ContainsAny(step, ";<>|&$`(")
}

// IsPage reports whether a step is the address of a page.
func (page) IsPage(step string) bool {
	return strings.HasPrefix(step, wellknown.DocsURL) && !strings.Contains(step, " ")
}

// Near returns as much of a request as has its bar change its color.
func (page) Near(requested int64) int64 { return requested / 10 * 9 }

// Class returns the color of the summary.
func (p page) Class() string {
	colors := map[inspect.Level]string{inspect.Problem: "bad", inspect.Unknown: "warn"}
	return cmp.Or(colors[p.Status.Level], "good")
}

// number is one of those at the top of the page.
type number struct {
	Value, Of, Note string
	Bad             bool // what the note says
}

func newNumbers(s *inspect.Snapshot, status inspect.Status, claims int) []number {
	usable := slices.DeleteFunc(slices.Clone(status.FileSystems), func(fs inspect.FileSystem) bool { return fs.State != "ok" })
	ready := slices.DeleteFunc(slices.Clone(status.Agents), func(a inspect.Agent) bool { return !a.Ready })
	var inUse, failing, total int
	for _, node := range s.NodeTunnels {
		inUse, failing, total = inUse+node.Status.InUse, failing+node.Status.Failing, total+node.Status.Total
	}
	tunnelNote := fmt.Sprintf("of %d; %d failing", total, failing)
	if s.Undefined {
		tunnelNote = "not known: the definitions are missing"
	}
	count := func(good int, of, note string, bad int, resources ...string) number {
		return number{status.Known(strconv.Itoa(good), resources...), of, note, bad > 0}
	}
	waiting, unusable, missing := len(status.Claims), len(status.FileSystems)-len(usable), len(status.Agents)-len(ready)
	return []number{
		count(claims-waiting, "claims served", fmt.Sprintf("%d waiting", waiting), waiting, "persistentvolumeclaims"),
		count(len(usable), "file systems usable", fmt.Sprintf("of %d", len(status.FileSystems)), unusable, "configmaps"),
		count(len(ready), "nodes ready", fmt.Sprintf("of %d", len(status.Agents)), missing, "daemonsets.apps", "pods", "nodes"),
		count(inUse, "tunnels in use", tunnelNote, failing, v1alpha1.NodeTunnelsObjects().GroupResource().String()),
	}
}

// path is a node with the way of its volumes to mount targets.
type path struct {
	inspect.Agent

	Zone  string
	Lanes []lane
	Idle  int // tunnels without clients and without problems
}

type lane struct {
	v1alpha1.Tunnel

	Zone  string // of the mount target
	Class string // its color
}

// newPaths returns those of all nodes, the ones with problems first.
func newPaths(s *inspect.Snapshot, status inspect.Status) (paths []path) {
	zones, nodes, tunnels := map[string]string{}, map[string]string{}, map[string]v1alpha1.NodeTunnelsStatus{}
	for _, fs := range status.FileSystems {
		for zone, addresses := range fs.MountTargets {
			for address := range strings.SplitSeq(addresses, ", ") {
				zones[address] = zone
			}
		}
	}
	for _, node := range s.Nodes {
		nodes[node.Name] = node.Labels[corev1.LabelTopologyZone]
	}
	for _, object := range s.NodeTunnels {
		tunnels[object.Name] = object.Status
	}
	agents := slices.SortedStableFunc(slices.Values(status.Agents), func(a, b inspect.Agent) int { return health(a) - health(b) })
	for _, agent := range agents {
		known := tunnels[agent.Node]
		p := path{Agent: agent, Zone: nodes[agent.Node], Idle: known.Total - len(known.Tunnels)}
		for _, tunnel := range known.Tunnels {
			l := lane{Tunnel: tunnel, Zone: zones[tunnel.MountTarget], Class: "good"}
			switch {
			case len(tunnel.Problems) > 0:
				l.Class = "bad"
			case !agent.Ready:
				l.Class = "soft" // what it has reported may be over
			case p.Zone != "" && strings.HasPrefix(l.Zone, p.Zone[:len(p.Zone)-1]) && l.Zone != p.Zone:
				l.Class = "warn" // another zone's
			}
			p.Lanes = append(p.Lanes, l)
		}
		paths = append(paths, p)
	}
	return paths
}
