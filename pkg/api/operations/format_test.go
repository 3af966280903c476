package operations

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestFormat holds what an annotation says, which Jobs of other versions have, too. Each text is what
// Encode writes, and Decode reads the operations of it.
func TestFormat(t *testing.T) {
	one, two, three := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "other", 3)
	with := func(o Owner, namespaceUID, class string) Owner {
		o.NamespaceUID, o.Class = namespaceUID, class
		return o
	}
	foreign := owner("c2", "ns", 4)
	named := one
	named.Volume = "efs-data"
	for name, tt := range map[string]struct {
		operations []Operation
		want       string
	}{
		"none":                         {[]Operation{}, `{"operations":[]}`},
		"a directory of its own":       {[]Operation{{Kind: Setup, Owner: one, Path: "/ns/claim-1-c1-ns-1"}}, `{"cluster":"c1","operations":[{"do":"setup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","under":"/ns"}]}`},
		"such a directory at the top":  {[]Operation{{Kind: Setup, Owner: one, Path: "/claim-1-c1-ns-1"}}, `{"cluster":"c1","operations":[{"do":"setup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","under":"/"}]}`},
		"a directory of another name":  {[]Operation{{Kind: Setup, Owner: one, Path: "/ns/my-claim-1-c1-ns-1"}}, `{"cluster":"c1","operations":[{"do":"setup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","path":"/ns/my-claim-1-c1-ns-1"}]}`},
		"a volume of another name":     {[]Operation{{Kind: Release, Owner: named}}, `{"cluster":"c1","operations":[{"do":"release","volume":"efs-data","ns":"ns","claim":"claim-1","uid":"c1-ns-1"}]}`},
		"another cluster":              {[]Operation{{Kind: Release, Owner: one}, {Kind: Release, Owner: foreign}}, `{"cluster":"c1","operations":[{"do":"release","ns":"ns","claim":"claim-1","uid":"c1-ns-1"},{"do":"release","cluster":"c2","ns":"ns","claim":"claim-4","uid":"c2-ns-4"}]}`},
		"one class":                    {[]Operation{{Kind: Setup, Owner: with(one, "", "efs"), Path: "/a"}, {Kind: Restore, Owner: with(three, "", "efs"), RestoreFrom: "u"}}, `{"cluster":"c1","class":"efs","operations":[{"do":"setup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","path":"/a"},{"do":"restore","ns":"other","claim":"claim-3","uid":"c1-other-3","restore":"u"}]}`},
		"two classes":                  {[]Operation{{Kind: Setup, Owner: with(one, "", "efs"), Path: "/a"}, {Kind: Setup, Owner: with(two, "", "fast"), Path: "/b"}}, `{"cluster":"c1","operations":[{"do":"setup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","class":"efs","path":"/a"},{"do":"setup","ns":"ns","claim":"claim-2","uid":"c1-ns-2","class":"fast","path":"/b"}]}`},
		"one has no class":             {[]Operation{{Kind: Setup, Owner: with(one, "", "efs"), Path: "/a"}, {Kind: Setup, Owner: two, Path: "/b"}}, `{"cluster":"c1","operations":[{"do":"setup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","class":"efs","path":"/a"},{"do":"setup","ns":"ns","claim":"claim-2","uid":"c1-ns-2","path":"/b"}]}`},
		"a cleanup needs no class":     {[]Operation{{Kind: Setup, Owner: with(one, "", "efs"), Path: "/a"}, {Kind: Cleanup, Owner: two, Path: "/b"}}, `{"cluster":"c1","class":"efs","operations":[{"do":"setup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","path":"/a"},{"do":"cleanup","ns":"ns","claim":"claim-2","uid":"c1-ns-2","path":"/b"}]}`},
		"a cleanup's class is its own": {[]Operation{{Kind: Cleanup, Owner: with(one, "n", "efs"), Path: "/a"}, {Kind: Setup, Owner: with(two, "m", "fast"), Path: "/b"}}, `{"cluster":"c1","nsUIDs":{"ns":"m"},"class":"fast","operations":[{"do":"cleanup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","nsUID":"n","class":"efs","path":"/a"},{"do":"setup","ns":"ns","claim":"claim-2","uid":"c1-ns-2","path":"/b"}]}`},
		"a uid for each namespace":     {[]Operation{{Kind: Setup, Owner: with(one, "n", ""), Path: "/a"}, {Kind: Setup, Owner: with(two, "n", ""), Path: "/b"}, {Kind: Setup, Owner: with(three, "o", ""), Path: "/c"}}, `{"cluster":"c1","nsUIDs":{"ns":"n","other":"o"},"operations":[{"do":"setup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","path":"/a"},{"do":"setup","ns":"ns","claim":"claim-2","uid":"c1-ns-2","path":"/b"},{"do":"setup","ns":"other","claim":"claim-3","uid":"c1-other-3","path":"/c"}]}`},
		"a namespace that came back":   {[]Operation{{Kind: Setup, Owner: with(one, "n", ""), Path: "/a"}, {Kind: Setup, Owner: with(two, "m", ""), Path: "/b"}}, `{"cluster":"c1","operations":[{"do":"setup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","nsUID":"n","path":"/a"},{"do":"setup","ns":"ns","claim":"claim-2","uid":"c1-ns-2","nsUID":"m","path":"/b"}]}`},
		"one record for all":           {[]Operation{{Kind: Release, Owner: one, Record: record(`{"a":1}`)}, {Kind: Release, Owner: two, Record: record(`{"a":1}`)}}, `{"cluster":"c1","record":{"a":1},"operations":[{"do":"release","ns":"ns","claim":"claim-1","uid":"c1-ns-1"},{"do":"release","ns":"ns","claim":"claim-2","uid":"c1-ns-2"}]}`},
		"a record of one":              {[]Operation{{Kind: Release, Owner: one, Record: record(`{"a":1}`)}, {Kind: Release, Owner: two}}, `{"cluster":"c1","operations":[{"do":"release","ns":"ns","claim":"claim-1","uid":"c1-ns-1","record":{"a":1}},{"do":"release","ns":"ns","claim":"claim-2","uid":"c1-ns-2"}]}`},
		"no record among many":         {[]Operation{{Kind: Release, Owner: one, Record: record(`1`)}, {Kind: Release, Owner: two}, {Kind: Release, Owner: three, Record: record(`1`)}}, `{"cluster":"c1","record":1,"operations":[{"do":"release","ns":"ns","claim":"claim-1","uid":"c1-ns-1"},{"do":"release","ns":"ns","claim":"claim-2","uid":"c1-ns-2","noRecord":true},{"do":"release","ns":"other","claim":"claim-3","uid":"c1-other-3"}]}`},
		"the record that saves most":   {[]Operation{{Kind: Release, Owner: one, Record: record(`1`)}, {Kind: Release, Owner: one, Record: record(`1`)}, {Kind: Release, Owner: two, Record: record(`22`)}, {Kind: Release, Owner: two, Record: record(`22`)}}, `{"cluster":"c1","record":22,"operations":[{"do":"release","ns":"ns","claim":"claim-1","uid":"c1-ns-1","record":1},{"do":"release","ns":"ns","claim":"claim-1","uid":"c1-ns-1","record":1},{"do":"release","ns":"ns","claim":"claim-2","uid":"c1-ns-2"},{"do":"release","ns":"ns","claim":"claim-2","uid":"c1-ns-2"}]}`},
		"of two that save as much":     {[]Operation{{Kind: Release, Owner: one, Record: record(`1`)}, {Kind: Release, Owner: one, Record: record(`1`)}, {Kind: Release, Owner: two, Record: record(`2`)}, {Kind: Release, Owner: two, Record: record(`2`)}}, `{"cluster":"c1","record":1,"operations":[{"do":"release","ns":"ns","claim":"claim-1","uid":"c1-ns-1"},{"do":"release","ns":"ns","claim":"claim-1","uid":"c1-ns-1"},{"do":"release","ns":"ns","claim":"claim-2","uid":"c1-ns-2","record":2},{"do":"release","ns":"ns","claim":"claim-2","uid":"c1-ns-2","record":2}]}`},
		"what JSON may leave as it is": {[]Operation{{Kind: Release, Owner: one, Path: "/<&>"}}, `{"cluster":"c1","operations":[{"do":"release","ns":"ns","claim":"claim-1","uid":"c1-ns-1","path":"/<&>"}]}`},
		"all that a setup can say": {
			[]Operation{{
				Kind: Setup, Owner: one, Path: "/a", Directory: Directory{Mode: "2770", UID: 1, GID: 2, AllocateGID: true, GIDMin: 3, GIDMax: 4},
				Rules: Rules{ShareAcrossNamespaces: true, ShareAcrossClusters: true, RefuseExisting: true}, Adopt: true, Made: true, Joins: true, Size: 5,
			}},
			`{"cluster":"c1","operations":[{"do":"setup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","path":"/a","mode":"2770","user":1,"group":2,"allocateGID":true,"gidMin":3,"gidMax":4,` +
				`"shareAcrossNamespaces":true,"shareAcrossClusters":true,"refuseExisting":true,"size":5,"adopt":true,"made":true,"joins":true}]}`,
		},
		"all that a clone can say": {
			[]Operation{{
				Kind: Clone, Owner: with(one, "n", "efs"), Path: "/ns/b",
				Source: Source{SourcePath: "/ns/a", SourceVolume: "pvc-a", SourceClaim: "a", SourceClaimUID: "ua"}, Record: record(`{"size":"1Gi"}`),
			}},
			`{"cluster":"c1","nsUIDs":{"ns":"n"},"class":"efs","operations":[{"do":"clone","ns":"ns","claim":"claim-1","uid":"c1-ns-1","path":"/ns/b","from":"/ns/a","fromVolume":"pvc-a","fromClaim":"a","fromUID":"ua","record":{"size":"1Gi"}}]}`,
		},
		"a clone that is abandoned": {
			[]Operation{{Kind: Clone, Owner: one, Path: "/ns/b", Abandon: true}},
			`{"cluster":"c1","operations":[{"do":"clone","ns":"ns","claim":"claim-1","uid":"c1-ns-1","path":"/ns/b","abandon":true}]}`,
		},
		"all that a cleanup can say": {
			[]Operation{{Kind: Cleanup, Owner: one, Path: "/a", Keep: "72h", LeaveToOthers: true, KeepDirectory: true}},
			`{"cluster":"c1","operations":[{"do":"cleanup","ns":"ns","claim":"claim-1","uid":"c1-ns-1","path":"/a","keep":"72h","leaveToOthers":true,"keepDirectory":true}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := Encode(tt.operations)
			if err != nil || string(data) != tt.want {
				t.Errorf("encoded as %s, error %v\nwant       %s", data, err, tt.want)
			}
			if got, err := Decode([]byte(tt.want)); err != nil || !reflect.DeepEqual(got, tt.operations) {
				t.Errorf("decoded as %+v, error %v\nwant       %+v", got, err, tt.operations)
			}
		})
	}
}

func record(text string) json.RawMessage { return json.RawMessage(text) }

// TestDecodeDerives reads what Encode does not write, and what other versions may.
func TestDecodeDerives(t *testing.T) {
	for name, tt := range map[string]struct {
		data string
		want Operation
	}{
		"a class of its own beside that of all":   {`{"class":"efs","operations":[{"do":"setup","uid":"u","class":"fast"}]}`, Operation{Kind: Setup, Owner: Owner{Volume: "pvc-u", ClaimUID: "u", Class: "fast"}}},
		"no class of all for a cleanup":           {`{"class":"efs","nsUIDs":{"ns":"n"},"operations":[{"do":"cleanup","ns":"ns","uid":"u"}]}`, Operation{Kind: Cleanup, Owner: Owner{Volume: "pvc-u", Namespace: "ns", ClaimUID: "u"}}},
		"the uid of its own namespace only":       {`{"nsUIDs":{"other":"n"},"operations":[{"do":"setup","ns":"ns","uid":"u"}]}`, Operation{Kind: Setup, Owner: Owner{Volume: "pvc-u", Namespace: "ns", ClaimUID: "u"}}},
		"a parent with a slash at its end":        {`{"operations":[{"do":"setup","claim":"a","uid":"u","under":"/ns/"}]}`, Operation{Kind: Setup, Owner: Owner{Volume: "pvc-u", Claim: "a", ClaimUID: "u"}, Path: "/ns/a-u"}},
		"a claim that is named like a parent":     {`{"operations":[{"do":"setup","claim":"../..","uid":"u","under":"/ns"}]}`, Operation{Kind: Setup, Owner: Owner{Volume: "pvc-u", Claim: "../..", ClaimUID: "u"}, Path: "/ns/../..-u"}},
		"a cluster of its own beside that of all": {`{"cluster":"c1","operations":[{"do":"release","uid":"u","cluster":"c2"}]}`, Operation{Kind: Release, Owner: Owner{Volume: "pvc-u", ClaimUID: "u", Cluster: "c2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(tt.data))
			if err != nil || !reflect.DeepEqual(got, []Operation{tt.want}) {
				t.Errorf("got %+v, error %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	good := Operation{Kind: Release, Owner: owner("c1", "ns", 1)}
	homeless, broken := good, good
	homeless.Cluster = ""
	broken.Record = record(`{"a":`)
	for name, tt := range map[string]struct {
		operations []Operation
		want       string
	}{
		"the second without a cluster": {[]Operation{good, homeless}, "operation 1 of 2 names no cluster"},
		"a record that is no JSON":     {[]Operation{good, broken}, "encoding 2 operations"},
	} {
		if data, err := Encode(tt.operations); err == nil || !strings.Contains(err.Error(), tt.want) || data != nil {
			t.Errorf("%s: encoded as %s, error %v, want …%s…", name, data, err, tt.want)
		}
	}
}

func TestAnnotationIsFilledToTheLastByte(t *testing.T) {
	o := Operation{Kind: Release, Owner: owner("c1", "ns", 1), Path: "/"}
	data, err := Encode([]Operation{o})
	if err != nil {
		t.Fatal(err)
	}
	o.Path += strings.Repeat("x", wellknown.MaxOperationsBytes-len(data))
	data, err = Encode([]Operation{o})
	if err != nil || len(data) != wellknown.MaxOperationsBytes {
		t.Fatalf("%d bytes, error %v", len(data), err)
	}
	if _, err := Decode(data); err != nil {
		t.Error(err)
	}
	if _, err := Decode(append(data, ' ')); err == nil {
		t.Error("one byte more is decoded")
	}
	o.Path += "x"
	if _, err := Encode([]Operation{o}); err == nil {
		t.Error("one byte more is encoded")
	}
}
