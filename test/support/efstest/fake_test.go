package efstest_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/test/support/efstest"
)

func fileSystem(id string) efs.FileSystem {
	return efs.FileSystem{ID: id, State: efs.Available, MountTargets: []efs.MountTarget{{SubnetID: "subnet-" + id}}}
}

func TestListFileSystems(t *testing.T) {
	one, two := fileSystem("fs-1"), fileSystem("fs-2")
	unread := one
	unread.MountTargets = nil
	failure := errors.New("throttled")
	tests := map[string]struct {
		prepare func(*efstest.Fake)
		want    efs.Listing
		err     error
	}{
		"shows what is there": {
			prepare: func(*efstest.Fake) {},
			want:    efs.Listing{FileSystems: []efs.FileSystem{one, two}, Complete: true},
		},
		"lacks what was removed": {
			prepare: func(f *efstest.Fake) { f.Remove("fs-1") },
			want:    efs.Listing{FileSystems: []efs.FileSystem{two}, Complete: true},
		},
		"lacks what is hidden": {
			prepare: func(f *efstest.Fake) { f.Hide("fs-2", true) },
			want:    efs.Listing{FileSystems: []efs.FileSystem{one}, Complete: true},
		},
		"is partial when truncated": {
			prepare: func(f *efstest.Fake) { f.Truncate(true) },
			want:    efs.Listing{FileSystems: []efs.FileSystem{one}},
		},
		"is partial when mount targets cannot be read": {
			prepare: func(f *efstest.Fake) { f.FailMountTargets("fs-1", failure) },
			want:    efs.Listing{FileSystems: []efs.FileSystem{unread, two}, Failed: map[string]error{"fs-1": failure}},
		},
		"a listing that fails": {
			prepare: func(f *efstest.Fake) { f.FailList(failure) },
			err:     failure,
		},
		"recovers": {
			prepare: func(f *efstest.Fake) {
				f.FailList(failure)
				f.FailList(nil)
				f.FailMountTargets("fs-1", failure)
				f.FailMountTargets("fs-1", nil)
				f.Hide("fs-1", true)
				f.Hide("fs-1", false)
			},
			want: efs.Listing{FileSystems: []efs.FileSystem{one, two}, Complete: true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fake := efstest.New(two, one)
			tt.prepare(fake)
			got, err := fake.ListFileSystems(t.Context())
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(efs.Listing{}, "ReadAt"),
				cmpopts.EquateErrors(), cmpopts.EquateComparable(efs.MountTarget{}))
			if diff != "" {
				t.Errorf("listing mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFileSystemExists(t *testing.T) {
	fake := efstest.New(fileSystem("fs-1"), fileSystem("fs-2"))
	fake.Hide("fs-1", true)
	failure := errors.New("access denied")
	fake.FailExists("fs-2", failure)
	if exists, err := fake.FileSystemExists(t.Context(), "fs-1"); !exists || err != nil {
		t.Errorf("a hidden one: %v, %v", exists, err)
	}
	if _, err := fake.FileSystemExists(t.Context(), "fs-2"); !errors.Is(err, failure) {
		t.Errorf("error %v, want %v", err, failure)
	}
	if exists, err := fake.FileSystemExists(t.Context(), "fs-3"); exists || err != nil {
		t.Errorf("one that never was: %v, %v", exists, err)
	}
	if got := fake.Calls().Exists; got != 3 {
		t.Errorf("%d calls counted, want 3", got)
	}
}

func TestListingsAreToldApart(t *testing.T) {
	fake := efstest.New()
	first, _ := fake.ListFileSystems(t.Context())
	second, _ := fake.ListFileSystems(t.Context())
	if !second.ReadAt.After(first.ReadAt) {
		t.Errorf("read at %s, then at %s", first.ReadAt, second.ReadAt)
	}
}

func TestListingIsACopy(t *testing.T) {
	fake := efstest.New(fileSystem("fs-1"))
	first, _ := fake.ListFileSystems(t.Context())
	first.FileSystems[0].MountTargets[0].SubnetID = "changed"
	second, _ := fake.ListFileSystems(t.Context())
	if second.FileSystems[0].MountTargets[0].SubnetID != "subnet-fs-1" {
		t.Error("the caller's change reached the fake")
	}
}

func TestConcurrentUse(t *testing.T) {
	fake := efstest.New()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 100 {
				fake.Put(fileSystem("fs-1"))
				if _, err := fake.ListFileSystems(t.Context()); err != nil {
					t.Error(err)
				}
				fake.Remove("fs-1")
				_ = fake.Calls()
			}
		})
	}
	group.Wait()
	if got := fake.Calls().List; got != 400 {
		t.Errorf("%d listings counted, want 400", got)
	}
}
