package discovery

import (
	"context"
	"maps"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// maxFinds bounds the access points that are asked for one by one after a listing, so that
// invented ids do not eat up the API's rate limit.
const maxFinds = 20

// want says which access points to describe: all of them, because what is known of others is
// forgotten. New ones are asked for at once.
func (p *poller) want(keys []ports.Key) {
	p.mu.Lock()
	changed := !slices.Equal(p.points, keys)
	p.points = keys
	p.mu.Unlock()
	if changed {
		signal(p.wanted)
	}
}

// describePoints looks up the wanted access points. Without any, the API is not asked.
func (p *poller) describePoints(ctx context.Context) {
	p.mu.Lock()
	keys, before := p.points, p.findings.points
	p.mu.Unlock()
	if len(keys) == 0 && len(before) == 0 {
		return
	}
	round := pointRound{poller: p, before: before, answers: map[ports.Key]pointAnswer{}}
	byFileSystem := map[string][]ports.Key{}
	for _, key := range keys {
		byFileSystem[key.FileSystem] = append(byFileSystem[key.FileSystem], key)
	}
	for _, id := range slices.Sorted(maps.Keys(byFileSystem)) {
		round.describe(ctx, id, byFileSystem[id])
	}
	if ctx.Err() == nil {
		p.note(func(f *findings) { f.points = round.answers })
	}
}

// pointRound is the questions after one listing.
type pointRound struct {
	*poller
	before, answers map[ports.Key]pointAnswer
	finds           int
}

// describe asks for the access points of one file system.
func (r *pointRound) describe(ctx context.Context, fileSystemID string, keys []ports.Key) {
	limited, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	listed, err := r.api.ListAccessPoints(limited, fileSystemID)
	if err != nil {
		r.failed()
	}
	for _, key := range keys {
		switch i := slices.IndexFunc(listed, func(point efs.AccessPoint) bool { return point.ID == key.AccessPoint }); {
		case err != nil:
			r.keep(key, err)
		case i >= 0:
			r.answers[key] = pointAnswer{known: true, point: listed[i]}
		default:
			r.find(limited, key)
		}
	}
}

// find asks for what its file system does not have: it may be another one's.
func (r *pointRound) find(ctx context.Context, key ports.Key) {
	if r.finds++; r.finds > maxFinds {
		r.answers[key] = pointAnswer{known: true}
		return
	}
	point, _, err := r.api.FindAccessPoint(ctx, key.AccessPoint)
	if err != nil {
		r.failed()
		r.keep(key, err)
		return
	}
	r.answers[key] = pointAnswer{known: true, point: point}
}

// keep leaves an answer as it was.
func (r *pointRound) keep(key ports.Key, err error) {
	answer := r.before[key]
	answer.err = err
	r.answers[key] = answer
}
