package requests_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
)

var deleted = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestRequestSurvivesEncoding(t *testing.T) {
	for _, want := range []requests.Request{
		{Do: requests.ListTrash},
		{Do: requests.ListOwners},
		{Do: requests.ListOwners, Lost: &requests.Lost{Cluster: "c1", Force: true}},
		{Do: requests.ListDirectories, Directories: &requests.Directories{Patterns: []string{"/a/*", "/$(HOME)"}, Paths: []string{"/a b"}}},
		{Do: requests.AdoptVolumes, Adoption: &requests.Adoption{Cluster: "c1", Lost: &requests.Lost{Cluster: "c2"}, Volumes: []requests.Volume{
			{Name: "pvc-1", Path: "/a", Namespace: "team", NamespaceUID: "u1", Class: "efs", Claim: "a", ClaimUID: "u2", Made: true, GID: 2000},
		}}},
		{Do: requests.ReleaseCluster, Release: &requests.Release{Cluster: "c1", DryRun: true, Force: true}},
		{Do: requests.EmptyTrash, Selection: &requests.Selection{Cluster: "c1", Namespace: "team", Claims: []string{"u1", "$(HOME)$$"}, Until: deleted}},
	} {
		data, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("$")) {
			t.Errorf("Kubernetes would expand %s", data)
		}
		got, err := requests.DecodeRequest(data)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

func TestRequestsAreRefused(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no JSON":                        {`list`, "reading the request"},
		"another action":                 {`{"do":"remove-all"}`, `no request "remove-all"`},
		"a limit of a later version":     {`{"do":"empty-trash","selection":{"cluster":"c1","until":"2026-01-02T03:04:05Z","path":"/a"}}`, `unknown field "path"`},
		"more than one":                  {`{"do":"list-trash"}{"do":"list-trash"}`, "followed by something else"},
		"everything of no cluster":       {`{"do":"empty-trash","selection":{"cluster":"","until":"2026-01-02T03:04:05Z"}}`, `the uid "" is empty`},
		"a lost cluster of no name":      {`{"do":"list-owners","lost":{"cluster":""}}`, `the uid "" is empty`},
		"a lost cluster of a trash":      {`{"do":"list-trash","lost":{"cluster":"c1"}}`, "a lost cluster is for list-owners"},
		"a list without directories":     {`{"do":"list-directories"}`, "needs some"},
		"a list of no directories":       {`{"do":"list-directories","directories":{}}`, "does not say which"},
		"a pattern of another place":     {`{"do":"list-directories","directories":{"patterns":["a"]}}`, "does not begin with /"},
		"the root":                       {`{"do":"list-directories","directories":{"patterns":["/"]}}`, "does not begin with / and a name"},
		"a pattern that goes up":         {`{"do":"list-directories","directories":{"patterns":["/a/../b"]}}`, `the component ".."`},
		"a pattern with an empty part":   {`{"do":"list-directories","directories":{"patterns":["/a//b"]}}`, `the component ""`},
		"a damaged pattern":              {`{"do":"list-directories","directories":{"patterns":["/a["]}}`, "syntax error in pattern"},
		"an adoption without volumes":    {`{"do":"adopt-volumes","adoption":{"cluster":"c1"}}`, "has no volumes"},
		"an adoption by no cluster":      {`{"do":"adopt-volumes","adoption":{"cluster":"","volumes":[{"name":"a"}]}}`, `the uid "" is empty`},
		"a takeover of no cluster":       {`{"do":"adopt-volumes","adoption":{"cluster":"c1","lost":{"cluster":""},"volumes":[{"name":"a"}]}}`, `the uid "" is empty`},
		"an adoption of a later version": {`{"do":"adopt-volumes","adoption":{"cluster":"c1","volumes":[{"name":"a","readOnly":true}]}}`, `unknown field "readOnly"`},
		"an adoption of a list":          {`{"do":"list-owners","adoption":{"cluster":"c1"}}`, "an adoption is for adopt-volumes"},
		"a release of no cluster":        {`{"do":"release-cluster","release":{"cluster":""}}`, `the uid "" is empty`},
		"a release without a cluster":    {`{"do":"release-cluster"}`, "a release is for release-cluster"},
		"nothing selected":               {`{"do":"empty-trash"}`, "needs one"},
		"a selection of a list":          {`{"do":"list-trash","selection":{"cluster":"c1","until":"2026-01-02T03:04:05Z"}}`, "a selection is for empty-trash"},
		"what was not seen in a list":    {`{"do":"empty-trash","selection":{"cluster":"c1"}}`, "seen in a list"},
		"a uid with a control character": {`{"do":"empty-trash","selection":{"cluster":"c1","claims":["a\nb"],"until":"2026-01-02T03:04:05Z"}}`, "control characters"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := requests.DecodeRequest([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	long := requests.Request{Do: requests.EmptyTrash, Selection: &requests.Selection{Cluster: "c1", Until: deleted}}
	for n := range 3000 {
		long.Selection.Claims = append(long.Selection.Claims, fmt.Sprintf("00000000-0000-4000-8000-%012d", n))
	}
	if _, err := long.Encode(); err == nil || !strings.Contains(err.Error(), "ask for less") {
		t.Errorf("a long request: %v", err)
	}
}

func TestSelection(t *testing.T) {
	const cluster, namespace, uid = "c1", "team", "u1"
	trashed := requests.Trashed{Cluster: cluster, Namespace: namespace, ClaimUID: uid, Deleted: deleted}
	unknown := trashed
	unknown.Unknown = true
	tests := map[string]struct {
		selection requests.Selection
		of        requests.Trashed
		want      bool
	}{
		"all of a cluster":           {requests.Selection{Cluster: cluster, Until: deleted}, trashed, true},
		"another cluster":            {requests.Selection{Cluster: "c2", Until: deleted}, trashed, false},
		"its namespace":              {requests.Selection{Cluster: cluster, Namespace: namespace, Until: deleted}, trashed, true},
		"another namespace":          {requests.Selection{Cluster: cluster, Namespace: "other", Until: deleted}, trashed, false},
		"its claim":                  {requests.Selection{Cluster: cluster, Claims: []string{"u2", uid}, Until: deleted}, trashed, true},
		"another claim":              {requests.Selection{Cluster: cluster, Claims: []string{"u2"}, Until: deleted}, trashed, false},
		"deleted after the list":     {requests.Selection{Cluster: cluster, Until: deleted.Add(-1)}, trashed, false},
		"no record says whose it is": {requests.Selection{Cluster: cluster, Until: deleted}, unknown, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.selection.Has(tt.of); got != tt.want {
				t.Error(got)
			}
		})
	}
}

func TestAnswerIsReadFromALog(t *testing.T) {
	var log bytes.Buffer
	log.WriteString("time=2026-01-02 level=INFO msg=\"job started\"\n")
	w := requests.NewWriter(&log)
	want := []requests.Trashed{
		{Slot: "pvc-1", Cluster: "c1", Claim: "a\nb\x1b[2J", Deleted: deleted, Forever: true},
		{Slot: "pvc-2", Unknown: true},
	}
	for _, trashed := range want {
		if err := w.Trashed(trashed); err != nil {
			t.Fatal(err)
		}
		log.WriteString("level=INFO\n")
	}
	end := requests.End{Swept: &operations.Swept{Removed: 7}, Stopped: true, Error: "stopped"}
	if err := w.End(end); err != nil {
		t.Fatal(err)
	}
	var got []requests.Trashed
	gotEnd, err := requests.Read(&log, func(line requests.Line) { got = append(got, *line.Trashed) })
	if err != nil {
		t.Fatal(err)
	}
	end.Lines = 2
	if diff := cmp.Diff(want, got) + cmp.Diff(end, gotEnd); diff != "" {
		t.Error(diff)
	}
}

func TestIncompleteAnswers(t *testing.T) {
	for name, log := range map[string]string{
		"nothing":        "",
		"no end":         `{"trashed":{"slot":"a"}}` + "\n",
		"a missing line": `{"trashed":{"slot":"a"}}` + "\n" + `{"end":{"lines":2}}` + "\n",
		"half a line":    `{"trashed":{"sl` + "\n" + `{"end":{"lines":0}}` + "\n",
		"a long line":    `{"trashed":{"slot":"` + strings.Repeat("x", 1<<20) + `"}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := requests.Read(strings.NewReader(log), func(requests.Line) {}); !errors.Is(err, requests.ErrIncomplete) {
				t.Error(err)
			}
		})
	}
}
