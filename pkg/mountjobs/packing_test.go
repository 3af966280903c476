package mountjobs_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func pack(waiting []operations.Operation, maxCount int) mountjobs.Packed[operations.Operation] {
	return mountjobs.Pack(waiting, func(o operations.Operation) operations.Operation { return o }, maxCount)
}

func TestPack(t *testing.T) {
	setup, cleanup, other := operation(operations.Setup, 1), operation(operations.Cleanup, 2), operation(operations.Release, 3)
	leaving := operation(operations.Cleanup, 1)
	huge := withRecord(operation(operations.Setup, 4), wellknown.MaxOperationsBytes)
	big, big2 := withRecord(operation(operations.Setup, 5), 40<<10), withRecord(operation(operations.Setup, 6), 40<<10+1)
	garbled := operation(operations.Cleanup, 7)
	garbled.Path = "/team/\xff"
	homeless := operation(operations.Setup, 8)
	homeless.Cluster = ""

	tests := map[string]struct {
		waiting  []operations.Operation
		maxCount int
		batch    []operations.Operation
		left     []operations.Operation
		unfit    []operations.Operation
	}{
		"nothing waits":                          {nil, 512, nil, nil, nil},
		"all kinds are packed together":          {ops(setup, cleanup, other), 512, ops(setup, cleanup, other), nil, nil},
		"the order is kept":                      {ops(other, setup, cleanup), 512, ops(other, setup, cleanup), nil, nil},
		"the count is a limit":                   {ops(setup, cleanup, other), 2, ops(setup, cleanup), ops(other), nil},
		"at least one goes":                      {ops(setup, cleanup), 0, ops(setup), ops(cleanup), nil},
		"one for each volume":                    {ops(setup, leaving, other), 512, ops(setup, other), ops(leaving), nil},
		"one too large is reported":              {ops(setup, huge, other), 512, ops(setup, other), nil, ops(huge)},
		"only one too large":                     {ops(huge), 512, nil, nil, ops(huge)},
		"the annotation is a limit":              {ops(big, big2, setup), 512, ops(big), ops(big2, setup), nil},
		"text that would not arrive":             {ops(garbled, setup), 512, ops(setup), nil, ops(garbled)},
		"one of no cluster does not go":          {ops(setup, homeless), 512, ops(setup), nil, ops(homeless)},
		"one too large frees its volume":         {ops(huge, operation(operations.Cleanup, 4)), 512, ops(operation(operations.Cleanup, 4)), nil, ops(huge)},
		"the second one's turn is the next":      {ops(leaving, setup), 512, ops(leaving), ops(setup), nil},
		"a limit counts volumes, not operations": {ops(setup, leaving, cleanup, other), 2, ops(setup, cleanup), ops(leaving, other), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			packed := pack(tt.waiting, tt.maxCount)
			var unfit []operations.Operation
			for _, u := range packed.Unfit {
				if u.Err == nil {
					t.Error("an operation is unfit for no reason")
				}
				unfit = append(unfit, u.Item)
			}
			got := [][]operations.Operation{packed.Batch, packed.Left, unfit}
			if want := [][]operations.Operation{tt.batch, tt.left, tt.unfit}; !reflect.DeepEqual(want, got) {
				t.Errorf("batch, left, unfit (-want +got):\n%s", cmp.Diff(want, got))
			}
		})
	}
}

// TestPackRestores: restores take what others leave, and an eighth in any case.
func TestPackRestores(t *testing.T) {
	some := func(kind operations.Kind, from, to, record int) (all []operations.Operation) {
		for n := from; n < to; n++ {
			o := operation(kind, n)
			o.Record = json.RawMessage(fmt.Sprintf("%q", fmt.Sprintf("%0*d", record, n))) // unlike all others
			all = append(all, o)
		}
		return all
	}
	for name, tt := range map[string]struct {
		restores, setups int
		maxCount, record int
		gotRestores      int
		gotSetups        int
	}{
		"only restores":                     {200, 0, 64, 0, 64, 0},
		"one honest claim behind many":      {200, 1, 64, 0, 63, 1},
		"many of both":                      {200, 200, 64, 0, 8, 56},
		"few restores take no more room":    {2, 200, 64, 0, 2, 62},
		"few setups":                        {200, 30, 64, 0, 34, 30},
		"in a small Job others go first":    {10, 10, 1, 0, 0, 1},
		"one restore in a small Job":        {10, 0, 1, 0, 1, 0},
		"bytes are shared as counts are":    {100, 100, 64, 6 << 10, 1, 9},
		"large restores do not stop others": {10, 1, 64, 60 << 10, 0, 1},
		"a large one alone":                 {10, 0, 64, 60 << 10, 1, 0},
	} {
		waiting := slices.Concat(some(operations.Restore, 0, tt.restores, tt.record), some(operations.Setup, 5000, 5000+tt.setups, min(tt.record, 6<<10)))
		packed := pack(waiting, tt.maxCount)
		restores, setups := 0, 0
		for _, o := range packed.Batch {
			if o.Kind == operations.Restore {
				restores++
			} else {
				setups++
			}
		}
		if restores != tt.gotRestores || setups != tt.gotSetups {
			t.Errorf("%s: %d restores and %d setups, want %d and %d", name, restores, setups, tt.gotRestores, tt.gotSetups)
		}
		checkBatch(t, packed.Batch, tt.maxCount)
		if len(packed.Batch)+len(packed.Left) != len(waiting) || !isSubsequence(packed.Batch, waiting) || !isSubsequence(packed.Left, waiting) {
			t.Errorf("%s: the order is not kept", name)
		}
	}
}

func isSubsequence(part, whole []operations.Operation) bool {
	for _, o := range whole {
		if len(part) > 0 && part[0].Volume == o.Volume && part[0].Kind == o.Kind {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// TestPackLosesNothing packs what is left again and again, as the loop does, until nothing is.
func TestPackLosesNothing(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		maxCount := 1 + rng.IntN(64)
		waiting := randomOperations(rng, rng.IntN(min(100, 8*maxCount)))
		sent := map[string]int{}
		for rest := slices.Clone(waiting); len(rest) > 0; {
			packed := pack(rest, maxCount)
			checkBatch(t, packed.Batch, maxCount)
			for _, u := range packed.Unfit {
				sent[identity(t, u.Item)]++
			}
			for _, operation := range packed.Batch {
				sent[identity(t, operation)]++
			}
			if len(packed.Left) >= len(rest) {
				t.Fatalf("seed %d: nothing of %d operations went", seed, len(rest))
			}
			rest = packed.Left
		}
		want := map[string]int{}
		for _, operation := range waiting {
			want[identity(t, operation)]++
		}
		if diff := cmp.Diff(want, sent); diff != "" {
			t.Fatalf("seed %d: lost or sent twice (-want +got):\n%s", seed, diff)
		}
	}
}

// checkBatch builds the Job and reads it back, so that it is about what mountjob would be given.
func checkBatch(t *testing.T, batch []operations.Operation, maxCount int) {
	t.Helper()
	if len(batch) > maxCount {
		t.Fatalf("%d operations are more than %d", len(batch), maxCount)
	}
	volumes := map[string]bool{}
	for _, operation := range batch {
		if volumes[operation.Volume] {
			t.Fatalf("volume %s is in a batch twice", operation.Volume)
		}
		volumes[operation.Volume] = true
	}
	arrived, err := mountjobs.Operations(newJob(t, batch), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := append([]operations.Operation{}, batch...); !reflect.DeepEqual(want, arrived) { // cmp takes seconds
		t.Fatalf("what arrives is not what was sent (-want +got):\n%s", cmp.Diff(want, arrived))
	}
}

func randomOperations(rng *rand.Rand, count int) []operations.Operation {
	kinds := []operations.Kind{operations.Setup, operations.Cleanup, operations.Release, operations.Restore}
	ops := make([]operations.Operation, count)
	for i := range ops {
		o := operation(kinds[rng.IntN(len(kinds))], rng.IntN(1+count*3/4)) // some volumes have several
		o.Keep = fmt.Sprint(i, "h")                                        // different for each
		switch rng.IntN(20) {
		case 0:
			o = withRecord(o, rng.IntN(80<<10))
		case 1:
			o.Path = "/" + string([]byte{byte(rng.IntN(256)), 'x'})
		case 2:
			o.Cluster = []string{"", "another"}[rng.IntN(2)]
		default:
			o = withRecord(o, rng.IntN(2<<10))
		}
		ops[i] = o
	}
	return ops
}

func identity(t *testing.T, operation operations.Operation) string {
	t.Helper()
	return fmt.Sprintf("%s %s %q %d", operation.Keep, operation.Volume, operation.Path, len(operation.Record))
}

func withRecord(operation operations.Operation, size int) operations.Operation {
	operation.Record = json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	return operation
}

func ops(ops ...operations.Operation) []operations.Operation { return ops }

func BenchmarkPack(b *testing.B) {
	waiting := make([]operations.Operation, 1000)
	for i := range waiting {
		waiting[i] = operation(operations.Setup, i)
	}
	for b.Loop() {
		pack(waiting, wellknown.DefaultMountJobBatch)
	}
}
