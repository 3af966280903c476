// Package denials keeps which rights a program needs and does not have. It looks at the answers
// that the apiserver gives to all of the program's requests, so it knows verb and resource
// without a list of what the program may want, and sees when a right has been granted.
package denials

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// forgetAfter is for rights that nobody has asked for since: their object may be gone.
	forgetAfter = time.Hour
	// maxMissing bounds what is kept, should a program lack a right in every namespace.
	maxMissing = 100
)

// Right is what a rule of a Role or ClusterRole grants.
type Right struct {
	Verb      string
	Group     string // "" is the core group
	Resource  string // with its subresource: jobs/status
	Namespace string // "" for all of the cluster
}

// String is as kubectl auth can-i takes it: "list persistentvolumes", "create jobs.batch in
// namespace efs-stunnel".
func (r Right) String() string {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	if r.Group != "" {
		resource += "." + r.Group
	}
	if sub != "" {
		resource += "/" + sub
	}
	if r.Namespace == "" {
		return r.Verb + " " + resource
	}
	return r.Verb + " " + resource + " in namespace " + r.Namespace
}

// KeepsCaches says whether a cache needs the right to stay up to date.
func (r Right) KeepsCaches() bool { return r.Verb == "list" || r.Verb == "watch" }

// Denials are the rights that are missing now.
type Denials struct {
	log  *slog.Logger
	now  func() time.Time
	desc *prometheus.Desc

	mu      sync.Mutex // protects following
	missing map[Right]denial
}

// denial is the latest refusal of a right.
type denial struct {
	object string // its name, "" for none: a rule may grant a right on some objects only
	at     time.Time
}

// New knows of no denial yet. namespace is the first part of the metric's name.
func New(namespace string, log *slog.Logger, now func() time.Time) *Denials {
	return &Denials{
		log: log, now: now, missing: map[Right]denial{},
		desc: prometheus.NewDesc(namespace+"_forbidden", "Rights that the apiserver has refused and not granted since; 1 for each.",
			[]string{"verb", "group", "resource"}, nil),
	}
}

// Missing are the rights that are missing, in order.
func (d *Denials) Missing() []Right {
	d.mu.Lock()
	defer d.mu.Unlock()
	var rights []Right
	for right, denied := range d.missing {
		if d.now().Sub(denied.at) > forgetAfter {
			delete(d.missing, right)
			continue
		}
		rights = append(rights, right)
	}
	slices.SortFunc(rights, func(a, b Right) int { return cmp.Compare(a.String(), b.String()) })
	return rights
}

// Check fails while a right is missing that matters to the caller.
func (d *Denials) Check(matters func(Right) bool) error {
	var words []string
	for _, right := range d.Missing() {
		if matters(right) {
			words = append(words, right.String())
		}
	}
	if len(words) == 0 {
		return nil
	}
	return fmt.Errorf("the service account may not %s: %w", strings.Join(words, ", "), errDenied)
}

var errDenied = errors.New("its ClusterRole or Role does not grant it")

// refuse tells of a denial once, however often the request is repeated.
func (d *Denials) refuse(right Right, object, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.missing[right]
	if !known && len(d.missing) >= maxMissing {
		return
	}
	d.missing[right] = denial{object, d.now()}
	if !known {
		d.log.Error("apiserver refuses a right that is needed", "reason", "missing: "+right.String(), "err", message)
	}
}

// grant ends a denial, unless it was about another object: then both can be true.
func (d *Denials) grant(right Right, object string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	denied, ok := d.missing[right]
	if !ok || denied.object != "" && denied.object != object {
		return
	}
	delete(d.missing, right)
	d.log.Info("right that was missing is granted, or not needed any more", "reason", right.String())
}

func (d *Denials) none() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.missing) == 0
}

// Describe implements prometheus.Collector.
func (d *Denials) Describe(descs chan<- *prometheus.Desc) { descs <- d.desc }

// Collect implements prometheus.Collector. Namespaces are left out: there may be many.
func (d *Denials) Collect(metrics chan<- prometheus.Metric) {
	rights := map[Right]bool{}
	for _, right := range d.Missing() {
		right.Namespace = ""
		rights[right] = true
	}
	for right := range rights {
		metrics <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, 1, right.Verb, right.Group, right.Resource)
	}
}
