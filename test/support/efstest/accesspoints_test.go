package efstest_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/test/support/efstest"
)

func TestAccessPoints(t *testing.T) {
	fake := efstest.New()
	one := efs.AccessPoint{ID: "fsap-1", FileSystemID: "fs-1", State: efs.Available}
	two := efs.AccessPoint{ID: "fsap-2", FileSystemID: "fs-1", State: efs.Creating}
	for _, point := range []efs.AccessPoint{two, one, {ID: "fsap-3", FileSystemID: "fs-2"}} {
		fake.PutAccessPoint(point)
	}
	got, err := fake.ListAccessPoints(t.Context(), "fs-1")
	if diff := cmp.Diff([]efs.AccessPoint{one, two}, got); diff != "" || err != nil {
		t.Errorf("%v; access points mismatch (-want +got):\n%s", err, diff)
	}
	if point, found, err := fake.FindAccessPoint(t.Context(), "fsap-1"); !found || err != nil || !cmp.Equal(one, point) {
		t.Errorf("got %+v, %v, %v", point, found, err)
	}
	fake.RemoveAccessPoint("fsap-1")
	if _, found, err := fake.FindAccessPoint(t.Context(), "fsap-1"); found || err != nil {
		t.Errorf("a removed one: %v, %v", found, err)
	}
	boom := errors.New("boom")
	fake.FailAccessPoints(boom)
	if _, err := fake.ListAccessPoints(t.Context(), "fs-1"); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if calls := fake.Calls().Points; calls != 4 {
		t.Errorf("counted %d calls", calls)
	}
}

func TestLostAnswerLeavesTheAccessPoint(t *testing.T) {
	fake, lost := efstest.New(), errors.New("lost")
	request := efs.AccessPoint{Token: "pvc-1", FileSystemID: "fs-1", Path: "/data"}
	fake.Intercept(func(c efstest.Call) error {
		if c.After {
			return lost
		}
		return nil
	})
	if _, err := fake.CreateAccessPoint(t.Context(), request); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
	fake.Intercept(nil)
	point, err := fake.CreateAccessPoint(t.Context(), request)
	if made, exists := fake.AccessPoint("pvc-1"); err != nil || !exists || made.ID != point.ID || fake.AccessPoints() != 1 {
		t.Errorf("got %+v, %v, of %d; there is %+v", point, err, fake.AccessPoints(), made)
	}
	if err := fake.DeleteAccessPoint(t.Context(), point.ID); err != nil || fake.AccessPoints() != 0 {
		t.Errorf("%d are left: %v", fake.AccessPoints(), err)
	}
	if calls := fake.Calls(); calls.Created != 1 || calls.Deleted != 1 || calls.Found != 0 {
		t.Errorf("counted %+v", calls)
	}
}
