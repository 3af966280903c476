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

	"gnuthought.com/efs-stunnel/pkg/directories"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

func TestPack(t *testing.T) {
	setup, cleanup, other := operation(directories.Setup, 1), operation(directories.Cleanup, 2), operation(directories.Release, 3)
	leaving := operation(directories.Cleanup, 1)
	huge := withRecord(operation(directories.Setup, 4), wellknown.MaxOperationsBytes)
	big, big2 := withRecord(operation(directories.Setup, 5), 40<<10), withRecord(operation(directories.Setup, 6), 40<<10+1)
	garbled := operation(directories.Cleanup, 7)
	garbled.Path = "/team/\xff"
	homeless := operation(directories.Setup, 8)
	homeless.Cluster = ""

	tests := map[string]struct {
		waiting  []directories.Operation
		maxCount int
		batch    []directories.Operation
		left     []directories.Operation
		unfit    []directories.Operation
	}{
		"nothing waits":                      {nil, 512, nil, nil, nil},
		"all kinds ride together":            {ops(setup, cleanup, other), 512, ops(setup, cleanup, other), nil, nil},
		"the order is kept":                  {ops(other, setup, cleanup), 512, ops(other, setup, cleanup), nil, nil},
		"the count is a limit":               {ops(setup, cleanup, other), 2, ops(setup, cleanup), ops(other), nil},
		"at least one goes":                  {ops(setup, cleanup), 0, ops(setup), ops(cleanup), nil},
		"one for each volume":                {ops(setup, leaving, other), 512, ops(setup, other), ops(leaving), nil},
		"one too large is reported":          {ops(setup, huge, other), 512, ops(setup, other), nil, ops(huge)},
		"only one too large":                 {ops(huge), 512, nil, nil, ops(huge)},
		"the annotation is a limit":          {ops(big, big2, setup), 512, ops(big), ops(big2, setup), nil},
		"text that would not arrive":         {ops(garbled, setup), 512, ops(setup), nil, ops(garbled)},
		"one of no cluster does not go":      {ops(setup, homeless), 512, ops(setup), nil, ops(homeless)},
		"one too large frees its volume":     {ops(huge, operation(directories.Cleanup, 4)), 512, ops(operation(directories.Cleanup, 4)), nil, ops(huge)},
		"the second one's turn is the next":  {ops(leaving, setup), 512, ops(leaving), ops(setup), nil},
		"a limit counts volumes, not wishes": {ops(setup, leaving, cleanup, other), 2, ops(setup, cleanup), ops(leaving, other), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			packed := mountjobs.Pack(tt.waiting, tt.maxCount)
			var unfit []directories.Operation
			for _, u := range packed.Unfit {
				if u.Err == nil {
					t.Error("an operation is unfit for no reason")
				}
				unfit = append(unfit, u.Operation)
			}
			got := [][]directories.Operation{packed.Batch, packed.Left, unfit}
			if want := [][]directories.Operation{tt.batch, tt.left, tt.unfit}; !reflect.DeepEqual(want, got) {
				t.Errorf("batch, left, unfit (-want +got):\n%s", cmp.Diff(want, got))
			}
		})
	}
}

// TestPackLosesNothing packs what is left again and again, as the loop does, until nothing is.
func TestPackLosesNothing(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		waiting := randomOperations(rng)
		maxCount := 1 + rng.IntN(64)
		sent := map[string]int{}
		for rest := slices.Clone(waiting); len(rest) > 0; {
			packed := mountjobs.Pack(rest, maxCount)
			checkBatch(t, packed.Batch, maxCount)
			for _, u := range packed.Unfit {
				sent[identity(t, u.Operation)]++
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
func checkBatch(t *testing.T, batch []directories.Operation, maxCount int) {
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
	arrived, err := mountjobs.Operations(newJob(t, batch))
	if err != nil {
		t.Fatal(err)
	}
	if want := append([]directories.Operation{}, batch...); !reflect.DeepEqual(want, arrived) { // cmp takes seconds
		t.Fatalf("what arrives is not what was sent (-want +got):\n%s", cmp.Diff(want, arrived))
	}
}

func randomOperations(rng *rand.Rand) []directories.Operation {
	kinds := []directories.Kind{directories.Setup, directories.Cleanup, directories.Release, directories.Restore}
	operations := make([]directories.Operation, rng.IntN(200))
	for i := range operations {
		o := operation(kinds[rng.IntN(len(kinds))], rng.IntN(150))
		o.Keep = fmt.Sprint(i, "h") // tells each from the others
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
		operations[i] = o
	}
	return operations
}

func identity(t *testing.T, operation directories.Operation) string {
	t.Helper()
	return fmt.Sprintf("%s %s %q %d", operation.Keep, operation.Volume, operation.Path, len(operation.Record))
}

func withRecord(operation directories.Operation, size int) directories.Operation {
	operation.Record = json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	return operation
}

func ops(operations ...directories.Operation) []directories.Operation { return operations }

func BenchmarkPack(b *testing.B) {
	waiting := make([]directories.Operation, 1000)
	for i := range waiting {
		waiting[i] = operation(directories.Setup, i)
	}
	for b.Loop() {
		mountjobs.Pack(waiting, wellknown.DefaultMountJobBatch)
	}
}
