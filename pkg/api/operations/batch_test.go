package operations

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// The manager and the worker may be of different versions for as long as the worker lingers.
func TestBatchFormat(t *testing.T) {
	cleanup := Operation{Kind: Cleanup, Owner: owner("c1", "ns", 1), Path: "/data", Keep: "72h"}
	for name, tt := range map[string]struct {
		began time.Time
		want  string // when it began, as written
	}{
		"a time in UTC":            {began, "2026-01-02T03:04:05Z"},
		"a time in another zone":   {began.In(time.FixedZone("", 3600)), "2026-01-02T03:04:05Z"},
		"parts of a second go":     {began.Add(999 * time.Millisecond), "2026-01-02T03:04:05Z"},
		"also before the epoch":    {time.Date(1969, 12, 31, 23, 59, 58, 1, time.UTC), "1969-12-31T23:59:58Z"},
		"a time that is not known": {time.Time{}, "0001-01-01T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			want := `{"batch":2,"began":"` + tt.want + `","operations":{"cluster":"c1","operations":[{"do":"cleanup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","path":"/data","keep":"72h"}]}}`
			data, err := EncodeBatch(Batch{Number: 2, Began: tt.began, Operations: []Operation{cleanup}})
			if err != nil || string(data) != want {
				t.Errorf("encoded as %s, error %v, want %s", data, err, want)
			}
			got, err := DecodeBatch(data)
			if err != nil || !reflect.DeepEqual(got, Batch{Number: 2, Began: tt.began.UTC().Truncate(time.Second), Operations: []Operation{cleanup}}) {
				t.Errorf("decoded as %+v, error %v", got, err)
			}
		})
	}
}

func TestEncodeBatchRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		batch Batch
		want  string
	}{
		"operations that Encode refuses": {Batch{Number: 2, Began: began, Operations: make([]Operation, 10_000)}, "more than 65536"},
		"a time that JSON does not have": {Batch{Number: 2, Began: began.AddDate(10_000, 0, 0)}, "year outside of range"},
	} {
		if data, err := EncodeBatch(tt.batch); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: encoded as %.80s, error %v, want …%s…", name, data, err, tt.want)
		}
	}
}

func TestDecodeBatchRefuses(t *testing.T) {
	const operations = `{"cluster":"c","operations":[{"do":"release","uid":"u"}]}`
	for name, tt := range map[string]struct{ data, want string }{
		"nothing":                       {"", "reading a batch: EOF"},
		"half":                          {`{"batch":2,"operations":{`, "reading a batch"},
		"an unknown field":              {`{"batch":2,"force":true,"operations":` + operations + `}`, `unknown field "force"`},
		"an unknown field in it":        {`{"batch":2,"operations":{"force":true,"operations":[]}}`, `unknown field "force"`},
		"something after it":            {`{"batch":2,"operations":` + operations + `}{}`, "followed by something else"},
		"no number":                     {`{"operations":` + operations + `}`, "batch 0 of a worker"},
		"the number of the first batch": {`{"batch":1,"operations":` + operations + `}`, "batch 1 of a worker"},
		"a negative number":             {`{"batch":-2,"operations":` + operations + `}`, "batch -2 of a worker"},
		"no operations":                 {`{"batch":2,"began":"2026-01-02T03:04:05Z"}`, "and operations"},
		"a time that is none":           {`{"batch":2,"began":"today","operations":` + operations + `}`, "reading a batch"},
		"more than EncodeBatch writes":  {`{"batch":2,"operations":` + operations + strings.Repeat(" ", MaxBatchBytes) + `}`, "more than 65792"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeBatch([]byte(tt.data))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !reflect.DeepEqual(got, Batch{}) {
				t.Errorf("got %+v and error %v, want …%s…", got, err, tt.want)
			}
		})
	}
}

// The largest batch that Encode accepts, with the longest number and time, fits what DecodeBatch accepts,
// and one byte more does not.
func TestLargestBatchFits(t *testing.T) {
	large := Operation{Kind: Setup, Owner: owner("c1", "ns", 1), Path: "/"}
	data, err := Encode([]Operation{large})
	if err != nil {
		t.Fatal(err)
	}
	large.Path += strings.Repeat("x", wellknown.MaxOperationsBytes-len(data))
	whole, err := EncodeBatch(Batch{Number: 1<<63 - 1, Began: began, Operations: []Operation{large}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeBatch(whole); err != nil {
		t.Error(err)
	}
	padded := append(whole, bytes.Repeat([]byte(" "), MaxBatchBytes-len(whole))...)
	if _, err := DecodeBatch(padded); err != nil {
		t.Errorf("%d bytes: %v", len(padded), err)
	}
	if _, err := DecodeBatch(append(padded, ' ')); err == nil {
		t.Errorf("%d bytes are read", len(padded)+1)
	}
	large.Path += "x"
	if _, err := EncodeBatch(Batch{Number: 2, Began: began, Operations: []Operation{large}}); err == nil {
		t.Error("one byte more is encoded")
	}
}

func TestReportedBatch(t *testing.T) {
	for message, want := range map[string]int{
		`{"operations":1,"batch":3,"complete":true}`: 3,
		`{"operations":1,"complete":true}`:           FirstBatch, // of a mountjob that has one batch only
		`{"batch":0}`:                                FirstBatch,
		`{"batch":-7}`:                               FirstBatch,
		`{"batch":"3"}`:                              FirstBatch,
		`{"batch":3`:                                 FirstBatch,
		"OOMKilled":                                  FirstBatch,
		"":                                           FirstBatch,
	} {
		if got := ReportedBatch([]byte(message)); got != want {
			t.Errorf("%q is of batch %d, want %d", message, got, want)
		}
	}
}

// A batch that passes is one that a worker can be given: EncodeBatch writes it again, and it stays the same.
func FuzzDecodeBatch(f *testing.F) {
	f.Add([]byte(`{"batch":2,"began":"2026-01-02T03:04:05Z","operations":{"cluster":"c","operations":[{"do":"setup","under":"/ns","ns":"ns","claim":"a","uid":"u"}]}}`))
	f.Add([]byte(`{"batch":9,"began":"2026-01-02T03:04:05.999+09:00","operations":{"cluster":"c","operations":[]}}`))
	f.Add([]byte(`{"batch":2,"operations":null}`))
	f.Add([]byte(`{"batch":1e3,"operations":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := DecodeBatch(data)
		if err != nil {
			return
		}
		if first.Number <= FirstBatch {
			t.Fatalf("batch %d passed", first.Number)
		}
		again, err := EncodeBatch(first)
		if err != nil {
			return // without a cluster, or longer when written out
		}
		second, err := DecodeBatch(again)
		if err != nil || second.Number != first.Number || len(second.Operations) != len(first.Operations) || !second.Began.Equal(first.Began.Truncate(time.Second)) {
			t.Errorf("%+v became %+v, error %v", first, second, err)
		}
	})
}
