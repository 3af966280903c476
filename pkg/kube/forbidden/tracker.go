// Package forbidden tracks the permissions that a program lacks. It reads the apiserver's responses to
// all requests of the program, so it needs no list of permissions, and notices when one is granted.
package forbidden

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	expiry         = time.Hour // for permissions that no request has needed since: their object may be gone
	maxMissing     = 100       // bounds the number of permissions, should a program lack one in every namespace
	maxStatusBytes = 64 << 10  // more than any refusal has
)

// Permission is what a rule of a Role or ClusterRole grants.
type Permission struct {
	Verb      string
	Group     string // "" is the core group
	Resource  string // with its subresource: jobs/status
	Namespace string // "" for all of the cluster
}

// String is as kubectl auth can-i takes it: "list persistentvolumes", "create jobs.batch in
// namespace efs-stunnel".
func (p Permission) String() string {
	resource, sub, _ := strings.Cut(p.Resource, "/")
	if p.Group != "" {
		resource += "." + p.Group
	}
	if sub != "" {
		resource += "/" + sub
	}
	if p.Namespace != "" {
		resource += " in namespace " + p.Namespace
	}
	return p.Verb + " " + resource
}

// refusal is the apiserver's message for every kind of authorizer. It distinguishes a missing permission
// from what admission refuses with the same code: quotas, Pod Security, namespaces that are terminating.
var refusal = regexp.MustCompile(` cannot (\S+) resource "([^"]+)" in API group "([^"]*)" (?:at the cluster scope|in the namespace "([^"]+)")`)

// IsRefusal reports whether an error is about a missing permission, which a Tracker logs once.
func IsRefusal(err error) bool {
	return apierrors.IsForbidden(err) && refusal.MatchString(err.Error())
}

// Tracker has the permissions that are missing now.
type Tracker struct {
	log  *slog.Logger
	now  func() time.Time
	desc *prometheus.Desc

	mu      sync.Mutex // protects following
	missing map[Permission]request
}

// request is the latest one that was refused. A rule may grant a permission on some objects only, so
// another request says nothing.
type request struct {
	method, path string
	at           time.Time
}

// New makes a Tracker without missing permissions. namespace is the first part of the metric's name.
func New(namespace string, log *slog.Logger, now func() time.Time) *Tracker {
	return &Tracker{
		log: log, now: now, missing: map[Permission]request{},
		desc: prometheus.NewDesc(namespace+"_forbidden", "1 for each permission that the apiserver has refused and not granted since.",
			[]string{"verb", "group", "resource"}, nil),
	}
}

// Missing returns the permissions that are missing, sorted.
func (t *Tracker) Missing() []Permission {
	t.mu.Lock()
	defer t.mu.Unlock()
	var permissions []Permission
	for permission, refused := range t.missing {
		if t.now().Sub(refused.at) > expiry {
			delete(t.missing, permission)
			continue
		}
		permissions = append(permissions, permission)
	}
	slices.SortFunc(permissions, func(a, b Permission) int { return cmp.Compare(a.String(), b.String()) })
	return permissions
}

// Check returns an error while a permission is missing that the caller needs.
func (t *Tracker) Check(needed func(Permission) bool) error {
	var missing []string
	for _, permission := range t.Missing() {
		if needed(permission) {
			missing = append(missing, permission.String())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the service account may not %s: its ClusterRole or Role does not grant it", strings.Join(missing, ", "))
}

// Describe implements prometheus.Collector.
func (t *Tracker) Describe(descs chan<- *prometheus.Desc) { descs <- t.desc }

// Collect implements prometheus.Collector. Namespaces are left out: there may be many.
func (t *Tracker) Collect(metrics chan<- prometheus.Metric) {
	permissions := map[Permission]bool{}
	for _, permission := range t.Missing() {
		permission.Namespace = ""
		permissions[permission] = true
	}
	for p := range permissions {
		metrics <- prometheus.MustNewConstMetric(t.desc, prometheus.GaugeValue, 1, p.Verb, p.Group, p.Resource)
	}
}

// Wrap is for rest.Config.Wrap.
func (t *Tracker) Wrap(next http.RoundTripper) http.RoundTripper { return transport{next, t} }

type transport struct {
	next    http.RoundTripper
	tracker *Tracker
}

// WrappedRoundTripper lets client-go find the transport inside.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return response, err
	}
	switch code := response.StatusCode; {
	case code == http.StatusForbidden:
		message := messageOf(response)
		if m := refusal.FindStringSubmatch(message); m != nil {
			t.tracker.refused(Permission{Verb: m[1], Resource: m[2], Group: m[3], Namespace: m[4]}, r, message)
		} else {
			t.tracker.authorized(r)
		}
	// Other errors may be returned before the apiserver checks permissions.
	case code < http.StatusBadRequest, code == http.StatusNotFound, code == http.StatusConflict, code == http.StatusUnprocessableEntity:
		t.tracker.authorized(r)
	}
	return response, nil
}

// messageOf reads the body and puts it back for the client.
func messageOf(response *http.Response) string {
	head, err := io.ReadAll(io.LimitReader(response.Body, maxStatusBytes))
	rest := response.Body
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), rest), rest}
	if err != nil {
		return "" // the client gets the error, too
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(head, nil, nil)
	if status, ok := object.(*metav1.Status); err == nil && ok {
		return status.Message
	}
	return string(head)
}

// refused logs a permission once, however often the request is repeated.
func (t *Tracker) refused(permission Permission, r *http.Request, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.missing[permission]
	if !known && len(t.missing) >= maxMissing {
		return
	}
	t.missing[permission] = request{r.Method, r.URL.Path, t.now()}
	if !known {
		t.log.Error("apiserver refuses a permission that is needed", "permission", permission.String(), "err", message)
	}
}

// authorized removes the permissions that a request needed. A watch counts as a list, too: client-go's
// caches list only if they may not watch, so they never repeat a list that was refused.
func (t *Tracker) authorized(r *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for permission, refused := range t.missing { // nearly always none
		watch, _ := strconv.ParseBool(r.URL.Query().Get("watch"))
		if refused.method == r.Method && refused.path == r.URL.Path && (watch || permission.Verb != "watch") {
			delete(t.missing, permission)
			t.log.Info("permission that was missing is granted, or not needed any more", "permission", permission.String())
		}
	}
}
