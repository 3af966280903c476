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
func (f *Fake) CreateAccessPoint(ctx context.Context, r efs.AccessPointRequest) (efs.AccessPoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.asked(ctx); err != nil {
		return efs.AccessPoint{}, err
	}
	for _, point := range f.accessPoints {
		if point.Token == r.Token {
			return point, nil
		}
	}
	point := efs.AccessPoint{
		ID: "fsap-" + strings.ReplaceAll(strings.TrimPrefix(r.Token, "pvc-"), "-", ""), FileSystemID: r.FileSystemID, State: efs.Available,
		Token: r.Token, Path: r.Path, User: &r.User, Tags: maps.Clone(r.Tags),
	}
	f.accessPoints[point.ID] = point
	return point, nil
}

// DeleteAccessPoint succeeds for one that does not exist.
func (f *Fake) DeleteAccessPoint(ctx context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.asked(ctx)
	if err == nil {
		delete(f.accessPoints, id)
	}
	return err
}
