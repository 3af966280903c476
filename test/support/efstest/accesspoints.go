package efstest

import (
	"context"
	"maps"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// PutAccessPoint creates an access point or replaces it.
func (f *Fake) PutAccessPoint(point efs.AccessPoint) {
	f.locked(func() { f.accessPoints[point.ID] = point })
}

// RemoveAccessPoint deletes an access point for good.
func (f *Fake) RemoveAccessPoint(id string) { f.locked(func() { delete(f.accessPoints, id) }) }

// FailAccessPoints makes every request about access points fail until it is set to nil.
func (f *Fake) FailAccessPoints(err error) { f.locked(func() { f.pointsError = err }) }

// AccessPoint returns the access point that has a token, also of a request whose answer was lost.
func (f *Fake) AccessPoint(token string) (point efs.AccessPoint, exists bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, point = range f.accessPoints {
		if point.Token == token {
			return point, true
		}
	}
	return efs.AccessPoint{}, false
}

// AccessPoints returns the number of access points.
func (f *Fake) AccessPoints() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.accessPoints)
}

// Call is a call that creates or deletes an access point, before it is carried out or after.
type Call struct {
	Create, After bool
}

// Intercept has a function called around the calls that create and delete access points. They fail with its error: before
// they are carried out, or as if the answer was lost. nil ends that.
func (f *Fake) Intercept(intercept func(Call) error) { f.locked(func() { f.intercept = intercept }) }

// change carries out a call between the two interceptions. The interceptor may call the fake, so mu is not held then.
func (f *Fake) change(ctx context.Context, create bool, carryOut func()) error {
	f.mu.Lock()
	intercept, err := f.intercept, f.asked(ctx)
	f.mu.Unlock()
	if intercept == nil {
		intercept = func(Call) error { return nil }
	}
	if err == nil {
		err = intercept(Call{Create: create})
	}
	if err != nil {
		return err
	}
	f.locked(carryOut)
	return intercept(Call{Create: create, After: true})
}

// ListAccessPoints gives those of a file system in order of id, which the real API does not promise.
func (f *Fake) ListAccessPoints(ctx context.Context, fileSystemID string) ([]efs.AccessPoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.asked(ctx); err != nil {
		return nil, err
	}
	points := []efs.AccessPoint{}
	for _, id := range slices.Sorted(maps.Keys(f.accessPoints)) {
		if point := f.accessPoints[id]; point.FileSystemID == fileSystemID {
			points = append(points, point)
		}
	}
	return points, nil
}

// FindAccessPoint requests one.
func (f *Fake) FindAccessPoint(ctx context.Context, id string) (point efs.AccessPoint, found bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.asked(ctx); err != nil {
		return efs.AccessPoint{}, false, err
	}
	f.calls.Found++
	point, found = f.accessPoints[id]
	return point, found, nil
}

// asked counts a question about access points. The caller holds mu.
func (f *Fake) asked(ctx context.Context) error {
	f.calls.Points++
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.pointsError
}

// CreateAccessPoint creates one for each token.
func (f *Fake) CreateAccessPoint(ctx context.Context, r efs.AccessPoint) (efs.AccessPoint, error) {
	point, exists := f.AccessPoint(r.Token)
	err := f.change(ctx, true, func() {
		if exists {
			return
		}
		f.calls.Created++
		point = efs.AccessPoint{
			ID: "fsap-" + strings.ReplaceAll(strings.TrimPrefix(r.Token, "pvc-"), "-", ""), FileSystemID: r.FileSystemID, State: efs.Available,
			Token: r.Token, Path: r.Path, User: r.User, Tags: maps.Clone(r.Tags),
		}
		f.accessPoints[point.ID] = point
	})
	if err != nil {
		return efs.AccessPoint{}, err
	}
	return point, nil
}

// DeleteAccessPoint succeeds for one that does not exist.
func (f *Fake) DeleteAccessPoint(ctx context.Context, id string) error {
	return f.change(ctx, false, func() {
		f.calls.Deleted++
		delete(f.accessPoints, id)
	})
}
