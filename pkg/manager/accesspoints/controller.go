// Package accesspoints creates and deletes the access points of volumes in EFS, and observes those of the file systems
// that have such volumes. The claims loop decides which; what this loop has observed and done is part of the
// next decision. All of it is in memory: an access point is created once for each volume whoever asks, because
// the volume's name is its client token.
package accesspoints

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/awserrors"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// API is the part of EFS that makes access points. Every call should end in bounded time.
type API interface {
	// CreateAccessPoint returns the access point that has the token, if there is one. It needs a user.
	CreateAccessPoint(ctx context.Context, want efs.AccessPoint) (efs.AccessPoint, error)
	// DeleteAccessPoint succeeds for one that does not exist.
	DeleteAccessPoint(ctx context.Context, id string) error
	ListAccessPoints(ctx context.Context, fileSystemID string) ([]efs.AccessPoint, error)
	FindAccessPoint(ctx context.Context, id string) (point efs.AccessPoint, found bool, err error)
}

// Options configure the loop.
type Options struct {
	API     API    // nil if access points cannot be made
	Cluster string // the uid of the namespace kube-system
	// FileSystems are those of classes and volumes with access points.
	FileSystems func() []string
	// Begun are the access points of directories that mount Jobs make or have made.
	Begun func() []volumes.Point
	// IsKnown reports whether a volume exists, or may be created yet.
	IsKnown func(volume string) bool
	Exists  func(volume string) bool
	// IsReleased reports whether a volume is to be deleted with its access point, as its policy is now.
	IsReleased func(volume string) bool
	Interval   time.Duration // between two listings of a file system
	Log        *slog.Logger
}

// Controller is the loop.
type Controller struct {
	options Options
	queue   *queue.Queue[key]
	changed func(volume string) // more is known about it, "" for all
	demand  func()              // the access points that need ports have changed

	mu       sync.Mutex
	known    registry                    // guarded by mu
	throttle *backoff.ExponentialBackOff // guarded by mu
	resume   time.Time                   // when AWS may be called again; guarded by mu
}

// key is one call of the API: the volume, access point or file system that it is about.
type key struct{ call, name string }

const (
	createCall = "create"
	deleteCall = "delete"
	listCall   = "list"
)

const (
	controlLoop   = "accesspoints"
	workers       = 4 // calls at once: AWS throttles bursts
	firstRetry    = 2 * time.Second
	maxRetry      = 5 * time.Minute
	firstThrottle = 500 * time.Millisecond
	maxThrottle   = 30 * time.Second
)

// New makes the loop. It starts nothing.
func New(o Options) *Controller {
	c := &Controller{options: o, known: newRegistry(), changed: func(string) {}, demand: func() {}}
	c.throttle = backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstThrottle), backoff.WithMaxInterval(maxThrottle), backoff.WithMaxElapsedTime(0))
	c.queue = queue.New(queue.Options{Name: controlLoop, KeyName: "call", FirstRetry: firstRetry, MaxRetry: maxRetry, Log: o.Log}, c.sync)
	c.options.Log = o.Log.With("controller", controlLoop)
	return c
}

// OnChange has functions called: one with a volume about which more is known, "" for all, and one when access
// points begin or cease to need a port. It is to be called before Run.
func (c *Controller) OnChange(volume func(string), demand func()) {
	c.changed, c.demand = volume, demand
}

// Run calls the API until the context ends. Without classes and volumes with access points, it calls nothing.
func (c *Controller) Run(ctx context.Context) error {
	return c.queue.Run(ctx, workers, func() {
		for _, id := range c.options.FileSystems() {
			c.queue.Add(key{listCall, id})
		}
		c.changed("") // what was asked for before this loop ran
	})
}

// Create begins to create an access point, unless that has begun.
func (c *Controller) Create(point volumes.Point) {
	c.mu.Lock()
	_, begun := c.known.wanted[point.Volume]
	if c.queue.Running() {
		c.known.wanted[point.Volume] = point
		delete(c.known.givenUp, point.Volume) // a restore of etcd has brought the claim back
	}
	c.mu.Unlock()
	if !begun {
		c.queue.Add(key{createCall, point.Volume})
	}
}

// Delete begins to delete the access point of a volume, unless that has begun.
func (c *Controller) Delete(point volumes.Point, id string) {
	c.mu.Lock()
	_, begun := c.known.deleting[id]
	if c.queue.Running() {
		c.known.deleting[id] = point
	}
	c.mu.Unlock()
	if !begun {
		c.queue.Add(key{deleteCall, id})
	}
}

// sync makes one call. While AWS throttles, all calls wait together.
func (c *Controller) sync(ctx context.Context, k key) (again time.Duration, err error) {
	if c.options.API == nil {
		c.fail(k, decide.Verdict{Cause: status.AccessPointFailed, Message: "this manager has no access to the EFS API (--discovery=none), which access points are made by: use a class without provisioningMode"})
		return 0, nil
	}
	c.mu.Lock()
	wait := time.Until(c.resume)
	c.mu.Unlock()
	if wait > 0 {
		return wait, nil
	}
	again, err = c.call(ctx, k)
	if err == nil || ctx.Err() != nil {
		return again, err
	}
	c.fail(k, decide.Verdict{Cause: status.AccessPointFailed, Message: awserrors.Message(err) + ". " + awserrors.Advice(err)})
	switch reason := awserrors.Reason(err); {
	case reason == awserrors.Throttled:
		return c.pause(), nil
	case reason == awserrors.NotFound && k.call == listCall: // who needs the listing later adds it again
		c.mu.Lock()
		delete(c.known.listed, k.name)
		c.mu.Unlock()
		return 0, nil
	}
	return 0, err
}

func (c *Controller) call(ctx context.Context, k key) (again time.Duration, err error) {
	switch k.call {
	case createCall:
		err = c.create(ctx, k.name)
	case deleteCall:
		err = c.delete(ctx, k.name)
	case listCall:
		again, err = c.options.Interval, c.list(ctx, k.name)
	}
	if err == nil {
		c.mu.Lock()
		c.throttle.Reset()
		c.mu.Unlock()
	}
	return again, err
}

func (c *Controller) fail(k key, problem decide.Verdict) {
	c.mu.Lock()
	// The text of an error differs each time, and a change of it is news for all that wait.
	cause := func(problem decide.Verdict) string { return awserrors.Cause(errors.New(problem.Message)) }
	isNews := cause(c.known.problems[k]) != cause(problem)
	if isNews {
		c.known.problems[k] = problem
	}
	volume := c.known.volumeOf(k)
	c.mu.Unlock()
	if isNews {
		c.changed(volume)
	}
}

func (c *Controller) pause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := time.Until(c.resume); left > 0 {
		return left // another call was throttled at the same time
	}
	wait := c.throttle.NextBackOff()
	c.resume = time.Now().Add(wait)
	return wait
}

func (c *Controller) create(ctx context.Context, volume string) error {
	c.mu.Lock()
	want, ok := c.known.wanted[volume]
	if ok {
		c.known.inFlight[volume] = true
		defer c.ended(volume)
	}
	c.mu.Unlock()
	if !ok {
		return nil // made or given up meanwhile
	}
	point, err := c.options.API.CreateAccessPoint(ctx, efs.AccessPoint{
		Token: want.Volume, FileSystemID: want.FileSystemID, Path: want.Path, Tags: want.Tags,
		User: &efs.PosixUser{UID: uint32(want.UID), GID: uint32(want.GID)}, //nolint:gosec // a class has only numbers that fit
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.known.add(want, point)
	c.mu.Unlock()
	c.options.Log.InfoContext(ctx, "access point created", slog.String("accessPoint", point.ID), slog.String("volume", volume), slog.String("fileSystem", want.FileSystemID))
	c.queue.AddAfter(key{listCall, want.FileSystemID}, c.options.Interval) // its class may be newer than this loop
	c.demand()
	c.changed(volume)
	return nil
}

// ended records the end of a creation. If it was given up meanwhile, a listing shows what it has made.
func (c *Controller) ended(volume string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known.inFlight, volume)
	if g, ok := c.known.givenUp[volume]; ok {
		c.queue.Add(key{listCall, g.fileSystem})
	}
}

// delete deletes an access point that was made for its volume, and keeps any other. The volume's policy may have
// changed since the deletion failed.
func (c *Controller) delete(ctx context.Context, id string) error {
	c.mu.Lock()
	want := c.known.deleting[id]
	point, exists := c.known.points[id]
	c.mu.Unlock()
	if !c.options.IsReleased(want.Volume) {
		c.mu.Lock()
		c.known.forget(id)
		c.mu.Unlock()
		return nil
	}
	var err error
	if !exists {
		if point, exists, err = c.options.API.FindAccessPoint(ctx, id); err != nil {
			return err
		}
	}
	kept := exists && !c.isOurs(point, want)
	if exists && !kept {
		err = c.options.API.DeleteAccessPoint(ctx, id)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.known.remove(id, kept)
	c.mu.Unlock()
	log := c.options.Log.With(slog.String("accessPoint", id), slog.String("volume", want.Volume))
	if kept {
		log.WarnContext(ctx, "access point kept")
	} else {
		log.InfoContext(ctx, "access point deleted")
	}
	c.changed(want.Volume)
	return nil
}

// isOurs reports whether an access point was made for a volume, and by this cluster where it has our tags.
func (c *Controller) isOurs(point efs.AccessPoint, want volumes.Point) bool {
	cluster, tagged := point.Tags[wellknown.TagCluster]
	return point.Token == want.Volume && point.FileSystemID == want.FileSystemID && point.Path == want.Path &&
		(!tagged || cluster == c.options.Cluster)
}

// list observes the access points of a file system, and reports those that this cluster has made and has no volume
// for. They are left alone: somebody may use their data.
func (c *Controller) list(ctx context.Context, fileSystemID string) error {
	c.mu.Lock()
	unsettled := c.known.unsettled(fileSystemID)
	c.mu.Unlock()
	points, err := c.options.API.ListAccessPoints(ctx, fileSystemID)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.known.settle(fileSystemID, points, unsettled)
	c.known.observe(fileSystemID, points, c.options.Begun(), c.options.IsKnown)
	c.mu.Unlock()
	for _, point := range points {
		if volume := c.orphanOf(point); volume != "" {
			c.options.Log.WarnContext(ctx, "access point has no volume", slog.String("accessPoint", point.ID), slog.String("volume", volume), slog.String("fileSystem", fileSystemID))
		}
	}
	c.changed("")
	return nil
}

// Demand returns the access points whose volumes do not exist yet. Those of volumes have their ports through these.
func (c *Controller) Demand() (demand ports.Demand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for volume, made := range c.known.made {
		if c.options.Exists(volume) {
			continue
		}
		demand.AccessPoints = append(demand.AccessPoints, made.key)
		if made.iam {
			demand.IAM = append(demand.IAM, made.key)
		}
	}
	return demand
}
