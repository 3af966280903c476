package accesspoints

import (
	"fmt"
	"maps"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

type registry struct {
	wanted   map[string]volumes.Point   // by volume, until they are made
	made     map[string]made            // by volume, since the start
	points   map[string]efs.AccessPoint // as AWS has last described them, by id
	deleting map[string]volumes.Point   // access points that are to be deleted, by id
	deleted  map[string]bool            // access points
	problems map[key]decide.Verdict     // of calls that are tried again
	listed   map[string]*listing        // by file system
	inFlight map[string]bool            // volumes for which a creation is called now
	givenUp  map[string]givenUp         // by volume, since the start
}

// givenUp is a creation that is not tried any more.
type givenUp struct {
	fileSystem string
	none       bool // a listing since has no access point of the volume
}

type made struct {
	key    ports.Key
	iam    bool
	listed bool // a listing has ended since
}

// listing has the access points of a file system, and the gids that these have or are to have.
type listing struct {
	points   map[string]bool // by id
	used     map[int]bool
	reserved map[string]int // by volume
	next     map[int]int    // of a range that begins with a number, the first that may be free: the others are used
}

func newRegistry() registry {
	return registry{
		wanted: map[string]volumes.Point{}, made: map[string]made{}, points: map[string]efs.AccessPoint{},
		deleting: map[string]volumes.Point{}, deleted: map[string]bool{}, problems: map[key]decide.Verdict{},
		listed: map[string]*listing{}, inFlight: map[string]bool{}, givenUp: map[string]givenUp{},
	}
}

// volumeOf returns the volume that a call is about, "" for all.
func (r *registry) volumeOf(k key) string {
	switch k.call {
	case createCall:
		return k.name
	case deleteCall:
		return r.deleting[k.name].Volume
	}
	return ""
}

func (r *registry) add(want volumes.Point, point efs.AccessPoint) {
	delete(r.wanted, want.Volume)
	delete(r.problems, key{createCall, want.Volume})
	r.made[want.Volume] = made{key: ports.Key{FileSystem: want.FileSystemID, AccessPoint: point.ID}, iam: want.IAM}
	r.points[point.ID] = point
	if listed := r.listed[want.FileSystemID]; listed != nil {
		listed.points[point.ID] = true
	}
}

// remove ends a deletion; an access point that is kept is not its volume's.
func (r *registry) remove(id string, kept bool) {
	delete(r.made, r.deleting[id].Volume)
	r.forget(id)
	delete(r.points, id)
	r.deleted[id] = true
	if kept {
		r.problems[key{deleteCall, id}] = decide.Verdict{Cause: status.AccessPointFailed, Message: fmt.Sprintf(
			"access point %s is kept: its client token, directory and tags are not those of an access point that this cluster has made for the volume. Delete it in AWS if nothing else uses it", id)}
	}
}

// forget ends a deletion that is called off.
func (r *registry) forget(id string) {
	delete(r.deleting, id)
	delete(r.problems, key{deleteCall, id})
}

// observe replaces what is known of a file system. An access point that was made since the last listing may not be in
// this one. One whose volume is gone, with its claim and Jobs, needs no port.
func (r *registry) observe(fileSystemID string, points []efs.AccessPoint, begun []volumes.Point, isKnown func(volume string) bool) {
	now := &listing{points: map[string]bool{}, used: map[int]bool{}, reserved: map[string]int{}, next: map[int]int{}}
	if before := r.listed[fileSystemID]; before != nil {
		now.reserved = before.reserved
		maps.DeleteFunc(now.reserved, func(volume string, _ int) bool { return !isKnown(volume) })
	}
	maps.DeleteFunc(r.made, func(volume string, _ made) bool { return !isKnown(volume) })
	for volume, m := range r.made {
		if m.key.FileSystem == fileSystemID && !m.listed {
			m.listed, now.points[m.key.AccessPoint] = true, true
			r.made[volume] = m
		}
	}
	for _, point := range points {
		now.points[point.ID], r.points[point.ID] = true, point
		if point.User != nil {
			now.used[int(point.User.GID)], now.used[int(point.User.UID)] = true, true
		}
	}
	for _, point := range begun {
		if _, known := now.reserved[point.Volume]; !known && point.FileSystemID == fileSystemID && point.Allocated != 0 {
			now.reserved[point.Volume] = point.Allocated
		}
	}
	for _, gid := range now.reserved {
		now.used[gid] = true
	}
	r.listed[fileSystemID] = now
	delete(r.problems, key{listCall, fileSystemID})
	maps.DeleteFunc(r.givenUp, func(volume string, _ givenUp) bool { return !isKnown(volume) })
}

// unsettled returns the volumes of a file system whose creation is given up and has ended: from now on, a listing shows
// whether it has made an access point.
func (r *registry) unsettled(fileSystemID string) (volumes []string) {
	for volume, g := range r.givenUp {
		if g.fileSystem == fileSystemID && !g.none && !r.inFlight[volume] {
			volumes = append(volumes, volume)
		}
	}
	return volumes
}

// settle records what a listing says of access points whose creation is given up.
func (r *registry) settle(fileSystemID string, points []efs.AccessPoint, unsettled []string) {
	tokens := map[string]string{}
	for _, point := range points {
		tokens[point.Token] = point.ID
	}
	for _, volume := range unsettled {
		if _, still := r.givenUp[volume]; !still {
			continue // its claim is back
		}
		r.givenUp[volume] = givenUp{fileSystemID, true}
		if id := tokens[volume]; id != "" {
			r.made[volume] = made{key: ports.Key{FileSystem: fileSystemID, AccessPoint: id}}
		}
	}
}

// reserve returns the lowest free gid of a range, the same one each time; 0 if there is none.
func (l *listing) reserve(volume string, lowest, highest int) int {
	if gid, ok := l.reserved[volume]; ok {
		return gid
	}
	gid := max(lowest, l.next[lowest])
	for gid <= highest && l.used[gid] {
		gid++
	}
	l.next[lowest] = gid
	if gid > highest {
		return 0
	}
	l.used[gid], l.reserved[volume] = true, gid
	return gid
}

// Made implements decide.Points.
func (c *Controller) Made(volume string) (id string, problem decide.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.made[volume].key.AccessPoint, c.known.problems[key{createCall, volume}]
}

// GiveUp implements decide.Points.
func (c *Controller) GiveUp(point volumes.Point) (none bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, before := c.known.givenUp[point.Volume]
	if c.options.API == nil || !c.queue.Running() {
		return c.options.API == nil
	}
	if !before {
		c.known.givenUp[point.Volume] = givenUp{fileSystem: point.FileSystemID}
		delete(c.known.wanted, point.Volume)
		delete(c.known.problems, key{createCall, point.Volume})
		c.queue.Add(key{listCall, point.FileSystemID})
	}
	return g.none
}

// Deleted implements decide.Points.
func (c *Controller) Deleted(id string) (deleted bool, problem decide.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.deleted[id], c.known.problems[key{deleteCall, id}]
}

// IsMissing implements decide.Points.
func (c *Controller) IsMissing(fileSystemID, id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	listed := c.known.listed[fileSystemID]
	return listed != nil && !listed.points[id]
}

// GID implements decide.Points: as the AWS EFS CSI driver does, it takes the lowest number that no access point of the
// file system has.
func (c *Controller) GID(fileSystemID, volume string, lowest, highest int) (gid int, wait string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := key{listCall, fileSystemID}
	listed, known := c.known.listed[fileSystemID]
	if !known {
		problem, failed := c.known.problems[list]
		if failed { // it is tried again by itself, but for a file system that was gone
			c.queue.AddAfter(list, maxRetry)
		} else {
			c.queue.Add(list)
		}
		return 0, "the access points of file system " + fileSystemID + " are listed, for a free gid. " + problem.Message
	}
	if gid = listed.reserve(volume, lowest, highest); gid == 0 {
		return 0, fmt.Sprintf("access points of file system %s have all gids from %d to %d: delete some that are not used, or use a class with a wider range", fileSystemID, lowest, highest)
	}
	return gid, ""
}

// orphanOf returns the volume that an access point of this cluster was made for, if that does not exist and will not;
// "" otherwise.
func (c *Controller) orphanOf(point efs.AccessPoint) string {
	volume := point.Tags[wellknown.TagVolume]
	if volume == "" || point.Tags[wellknown.TagCluster] != c.options.Cluster || c.options.IsKnown(volume) {
		return ""
	}
	return volume
}
