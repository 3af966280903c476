package table

import (
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// inventory is what the EFS API has answered so far. It is never changed once it is handed over.
type inventory struct {
	polled    bool        // the first poll has ended, or there is no API
	listing   efs.Listing // the latest answer; zero before it
	failure   error       // of the latest poll
	succeeded time.Time   // when the latest answer came; zero before it
	existence map[string]existence
	points    map[ports.Key]pointAnswer // of the access points that were requested
}

// existence is the API's answer about a single file system.
type existence struct {
	listing time.Time // ReadAt of the listing that was the reason to ask
	gone    bool
	err     error // then gone is what it was before
}

// pointAnswer is the API's answer about an access point.
type pointAnswer struct {
	known bool            // the API has answered
	point efs.AccessPoint // the zero one if there is none
	err   error           // of the latest call; the rest is as it was before
}

// listed says whether the API has answered a poll.
func (i inventory) listed() bool { return !i.succeeded.IsZero() }

// listsNothing says that the API lists no file system at all.
func (i inventory) listsNothing() bool {
	return i.listed() && i.listing.Complete && len(i.listing.FileSystems) == 0
}

// since is what is left when everything after a listing is of another account or region: that
// listing, in which nothing counts as missing.
func (i inventory) since(accepted efs.Listing) inventory {
	accepted.Complete = false
	i.listing, i.succeeded = accepted, accepted.ReadAt
	i.existence, i.points = nil, nil
	return i
}

// gone are the ids that the API does not find.
func (i inventory) gone(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !i.existence[id].gone })
}

// unconfirmed are the ids for which the API was not asked since its latest listing.
func (i inventory) unconfirmed(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		answer, ok := i.existence[id]
		return ok && answer.listing.Equal(i.listing.ReadAt)
	})
}

// remember adds a listing to what was seen before. Mount targets that could not be read this
// time are as they were.
func remember(seen map[string]efs.FileSystem, listing efs.Listing, keep func(id string) bool) map[string]efs.FileSystem {
	now := map[string]efs.FileSystem{}
	for id, fs := range seen {
		if keep(id) {
			now[id] = fs
		}
	}
	for _, fs := range listing.FileSystems {
		if listing.Failed[fs.ID] != nil {
			fs.MountTargets = seen[fs.ID].MountTargets
		}
		now[fs.ID] = fs
	}
	return now
}
