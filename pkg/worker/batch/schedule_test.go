package batch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/test/support/memorytest"
)

func TestPhases(t *testing.T) {
	op := func(kind operations.Kind, volume, p string) operations.Operation {
		return operations.Operation{Kind: kind, Owner: operations.Owner{Volume: volume}, Path: p}
	}
	release := func(volume, p string) operations.Operation { return op(operations.Release, volume, p) }
	cleanup := func(volume, p string) operations.Operation { return op(operations.Cleanup, volume, p) }
	setup := func(volume, p string) operations.Operation { return op(operations.Setup, volume, p) }
	restore := func(volume, p string) operations.Operation { return op(operations.Restore, volume, p) }
	tests := map[string]struct {
		ops  []operations.Operation
		want [][][]int
	}{
		"nothing": {},
		"releases, cleanups, setups, restores": {
			[]operations.Operation{restore("a", "/a"), setup("b", "/b"), op("?", "c", "/c"), cleanup("d", "/d"), release("e", "/e"), setup("f", "/f")},
			[][][]int{{{2}}, {{4}}, {{3}}, {{1}, {5}}, {{0}}},
		},
		"a path that is restored is set up after that": {
			[]operations.Operation{setup("a", "/a"), restore("b", "/a"), restore("c", "/c"), setup("d", "/d")},
			[][][]int{{{3}}, {{1, 2, 0}}},
		},
		"the same path":           {[]operations.Operation{setup("a", "/x"), setup("b", "/y"), setup("c", "/x")}, [][][]int{{{0, 2}, {1}}}},
		"above":                   {[]operations.Operation{setup("a", "/x/y/z"), setup("b", "/y"), setup("c", "/x")}, [][][]int{{{0, 2}, {1}}}},
		"below":                   {[]operations.Operation{setup("a", "/x"), setup("b", "/x2"), setup("c", "/x/y/z")}, [][][]int{{{0, 2}, {1}}}},
		"both below a third":      {[]operations.Operation{setup("a", "/x/a"), setup("b", "/x/b"), setup("c", "/x")}, [][][]int{{{0, 1, 2}}}},
		"below what is not there": {[]operations.Operation{setup("a", "/x/a"), setup("b", "/x/b")}, [][][]int{{{0}, {1}}}},
		"the same volume":         {[]operations.Operation{cleanup("a", "/x"), cleanup("b", "/y"), cleanup("a", "/z")}, [][][]int{{{0, 2}, {1}}}},
		"through several":         {[]operations.Operation{cleanup("a", "/x"), cleanup("b", "/y"), cleanup("b", "/x/z"), cleanup("c", "/y/z")}, [][][]int{{{0, 1, 2, 3}}}},
		"paths that are refused":  {[]operations.Operation{setup("a", ""), setup("b", "/"), setup("c", "../x"), setup("d", "x//y")}, [][][]int{{{0}, {1}, {2}, {3}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, phases(tt.ops)); diff != "" {
				t.Errorf("phases mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRestoresComeAfterSetupsOfOtherPaths(t *testing.T) {
	op := func(kind operations.Kind, volume, p string) operations.Operation {
		return operations.Operation{Kind: kind, Owner: operations.Owner{Volume: volume}, Path: p}
	}
	ops := []operations.Operation{
		op(operations.Restore, "0", "/back"), op(operations.Setup, "1", "/back"), op(operations.Setup, "2", "/other"), op(operations.Cleanup, "3", "/back"),
		op(operations.Setup, "4", "/third"), op(operations.Release, "5", "/other"), op(operations.Restore, "6", "/more"),
	}
	if got, want := slices.Concat(slices.Concat(phases(ops)...)...), []int{5, 3, 2, 4, 0, 6, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGIDsAreReclaimedOnlyAlone(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives directories a group")
	}
	dir := memorytest.Folder(t)
	gids := filepath.Join(dir, ".efs-stunnel/gids")
	if err := errors.Join(os.MkdirAll(gids, 0o700), os.WriteFile(filepath.Join(gids, "3000"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	f, err := fsroot.Open(t.Context(), dir, fsroot.Options{FileSystemID: "fs-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := Begin(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	op := operations.Operation{
		Kind: operations.Setup, Owner: operations.Owner{Volume: "pvc-1", Cluster: "c1", Namespace: "ns", Claim: "a", ClaimUID: "1"}, Path: "/ns/a",
	}
	op.AllocateGID, op.GIDMin, op.GIDMax = true, 3000, 3000
	if _, err := b.doBesideOthers(t.Context(), op); !errors.Is(err, ledger.ErrAlone) {
		t.Errorf("beside others: %v", err)
	}
	if result := b.Do(t.Context(), op); result.State != operations.Done || result.GID != 3000 {
		t.Errorf("got %+v", result)
	}
}
