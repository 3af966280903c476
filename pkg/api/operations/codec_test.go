package operations

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

func TestDecodeReturnsWhatWasEncoded(t *testing.T) {
	all := Operation{
		Kind: Setup, Owner: owner("c1", "ns", 1), Path: "/a <&> ~ü/b",
		Directory: Directory{Mode: "2770", UID: 1, GID: 2, AllocateGID: true, GIDMin: 3, GIDMax: 4},
		Rules:     Rules{ShareAcrossNamespaces: true, ShareAcrossClusters: true, RefuseExisting: true},
		Adopt:     true, Made: true, Keep: "24h", LeaveToOthers: true, RestoreFrom: "uid",
		Record: json.RawMessage(`{"any":["thing"]}`),
	}
	anyName, elsewhere := all, all
	anyName.Volume = "anything"
	elsewhere.Cluster = "c2"
	own, atTop := all, all
	bare, other := all, all
	bare.Record = nil
	other.Record = json.RawMessage(`{"other":1}`)
	for i, o := range []*Operation{&anyName, &elsewhere, &own, &atTop, &bare, &other, &all} {
		o.Namespace, o.NamespaceUID = fmt.Sprint("ns-", i%3), fmt.Sprint("uid-", i%3) // each with one uid
	}
	bare.NamespaceUID = ""
	other.Kind, other.Class = Cleanup, "x"
	own.Path = "/base/deep/claim-1-c1-ns-1"
	atTop.Path = "/claim-1-c1-ns-1"
	want := []Operation{other, all, anyName, bare, elsewhere, own, atTop}
	data, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v\nfrom %s", got, want, data)
	}
	if strings.Contains(string(data), `\u00`) {
		t.Errorf("characters are escaped: %s", data)
	}
}

// The claims have names and records of ordinary length.
func TestFullBatchFitsTheAnnotation(t *testing.T) {
	var operations []Operation
	for i := range wellknown.DefaultMountJobBatch {
		uid := fmt.Sprintf("5f6fdb2c-9e3a-4b9f-9d3c-%012d", i)
		claim := fmt.Sprintf("data-%04d", i)
		operations = append(operations, Operation{
			Kind:   Setup,
			Owner:  Owner{Volume: "pvc-" + uid, Cluster: "0e2ed1b0-9e3a-4b9f-9d3c-0123456789ab", Namespace: "team-a", Claim: claim, ClaimUID: uid, NamespaceUID: "7a2ed1b0-9e3a-4b9f-9d3c-0123456789ab", Class: "efs-stunnel"},
			Path:   "/team-a/" + claim + "-" + uid,
			Record: json.RawMessage(`{"fs":"fs-0123456789abcdef0","size":"100Gi","modes":["RWX"],"class":"efs-stunnel","policy":"Delete"}`),
		})
	}
	data, err := Encode(operations)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d operations, %d bytes", len(operations), len(data))
}

func TestEncodeRefusesTooManyOperations(t *testing.T) {
	if _, err := Encode(make([]Operation, 10_000)); err == nil {
		t.Error("no error")
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, data := range map[string]string{
		"nothing":                       "",
		"half":                          `{"operations":[{"do":"setup"`,
		"a list":                        `[]`,
		"an unknown field":              `{"operations":[{"do":"setup","force":true}]}`,
		"an unknown field of the batch": `{"operations":[],"force":true}`,
		"a path and a parent":           `{"operations":[{"do":"setup","path":"/a","under":"/b"}]}`,
		"a record and noRecord":         `{"operations":[{"do":"setup","record":{},"noRecord":true}]}`,
		"something after it":            `{"operations":[]}{}`,
		"more than an annotation has":   `{"operations":[]` + strings.Repeat(" ", wellknown.MaxOperationsBytes) + `}`,
		"a number for the kind's name":  `{"operations":[{"do":1}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Decode([]byte(data)); err == nil {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"cluster":"c","operations":[{"do":"setup","under":"/ns","ns":"ns","claim":"a","uid":"u"}]}`))
	f.Add([]byte(`{"cluster":"c","record":{"a":1},"operations":[{"do":"setup","uid":"u"},{"do":"cleanup","uid":"v","noRecord":true}]}`))
	f.Add([]byte(`{"operations":[{"do":"cleanup","path":"/x","keep":"forever","record":{"a":1}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(first)
		if err != nil {
			return // without a cluster, or longer when written out
		}
		second, err := Decode(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		for i := range first {
			first[i].Record, second[i].Record = nil, nil // JSON may be written in many ways
		}
		if !reflect.DeepEqual(first, second) {
			t.Errorf("%+v became %+v", first, second)
		}
	})
}

// owner is the n-th claim of a namespace.
func owner(cluster, namespace string, n int) Owner {
	uid := fmt.Sprintf("%s-%s-%d", cluster, namespace, n)
	return Owner{Volume: "pvc-" + uid, Cluster: cluster, Namespace: namespace, Claim: fmt.Sprintf("claim-%d", n), ClaimUID: uid}
}
