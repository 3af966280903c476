package discovery

import (
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// findings are what the API has said so far. They are never changed once they are handed over.
type findings struct {
	over      bool        // the first poll has ended, or there is no API to wait for
	listing   efs.Listing // the latest that was an answer; zero before it
	failure   error       // of the latest poll
	succeeded time.Time   // when the latest answer came; zero before it
	answers   map[string]answer
	points    map[ports.Key]pointAnswer // of the access points that were asked for
}

// answer is what the API said of a single file system.
type answer struct {
	listing time.Time // ReadAt of the listing that gave the reason to ask
	gone    bool
	err     error // then gone is what it was before
}

// listed says whether the API has answered at all.
func (f findings) listed() bool { return !f.succeeded.IsZero() }

// listsNothing says that the API sees no file system at all.
func (f findings) listsNothing() bool {
	return f.listed() && f.listing.Complete && len(f.listing.FileSystems) == 0
}

// since is what is left when everything after a listing is of another account or region: that
// listing, as one of which nothing that it lacks is missing.
func (f findings) since(accepted efs.Listing) findings {
	accepted.Complete = false
	f.listing, f.succeeded = accepted, accepted.ReadAt
	f.answers, f.points = nil, nil
	return f
}

// gone are those of the ids that the API does not find.
func (f findings) gone(ids []string) []string {
	var gone []string
	for _, id := range ids {
		if f.answers[id].gone {
			gone = append(gone, id)
		}
	}
	return gone
}

// unasked are those of the ids for which the API was not asked since its latest listing.
func (f findings) unasked(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		a, ok := f.answers[id]
		return ok && a.listing.Equal(f.listing.ReadAt)
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
