package awsefs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// servePoints answers in pages of one, whatever is requested.
func (s *server) servePoints(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var found []map[string]any
	for _, point := range s.points {
		if point["AccessPointId"] == query.Get("AccessPointId") || point["FileSystemId"] == query.Get("FileSystemId") {
			found = append(found, point)
		}
	}
	if id := query.Get("AccessPointId"); id != "" && len(found) == 0 {
		w.Header().Set("x-amzn-ErrorType", "AccessPointNotFound")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"ErrorCode":"AccessPointNotFound","Message":"no"}`)
		return
	}
	at, _ := strconv.Atoi(cmp.Or(query.Get("NextToken"), "0"))
	answer := map[string]any{"AccessPoints": found[min(at, len(found)):min(at+1, len(found))]}
	if at+1 < len(found) {
		answer["NextToken"] = strconv.Itoa(at + 1)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func describedPoint(id, fileSystem, root string) map[string]any {
	return map[string]any{
		"AccessPointId": id, "FileSystemId": fileSystem, "LifeCycleState": "available",
		"RootDirectory": map[string]any{"Path": root},
	}
}

func TestAccessPointsOfAFileSystem(t *testing.T) {
	bare := map[string]any{"AccessPointId": "fsap-2", "FileSystemId": "fs-1", "LifeCycleState": "creating"}
	client, seen := newClient(t, &server{points: []map[string]any{
		describedPoint("fsap-1", "fs-1", "/one"), bare, describedPoint("fsap-3", "fs-2", "/"),
	}})
	got, err := client.ListAccessPoints(t.Context(), "fs-1")
	want := []efs.AccessPoint{
		{ID: "fsap-1", FileSystemID: "fs-1", State: efs.Available},
		{ID: "fsap-2", FileSystemID: "fs-1", State: efs.Creating},
	}
	if diff := gocmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v; access points mismatch (-want +got):\n%s", err, diff)
	}
	if calls := seen.counts["DescribeAccessPoints success"]; calls != 2 {
		t.Errorf("%d calls, want one for each page", calls)
	}
}

func TestOneAccessPoint(t *testing.T) {
	client, seen := newClient(t, &server{points: []map[string]any{describedPoint("fsap-1", "fs-1", "/one")}})
	point, found, err := client.FindAccessPoint(t.Context(), "fsap-1")
	if !found || err != nil || point.FileSystemID != "fs-1" {
		t.Errorf("got %+v, %v, %v", point, found, err)
	}
	if _, found, err := client.FindAccessPoint(t.Context(), "fsap-2"); found || err != nil {
		t.Errorf("one that is not there: %v, %v", found, err)
	}
	if calls := seen.counts["DescribeAccessPoints AccessPointNotFound"]; calls != 1 {
		t.Errorf("counted %v", seen.counts)
	}
}

// TestAccessPointsThatCannotBeRead: only the API's own word means that there is none.
func TestAccessPointsThatCannotBeRead(t *testing.T) {
	client, _ := newClient(t, &server{fail: map[string]failure{
		"fs-1": {http.StatusForbidden, "AccessDeniedException"},
		"":     {http.StatusTooManyRequests, "TooManyRequests"},
	}})
	code := interface{ ErrorCode() string }(nil)
	if _, err := client.ListAccessPoints(t.Context(), "fs-1"); !errors.As(err, &code) || code.ErrorCode() != "AccessDeniedException" {
		t.Errorf("got %v", err)
	}
	if _, found, err := client.FindAccessPoint(t.Context(), "fsap-1"); found || err == nil {
		t.Errorf("got %v, %v", found, err)
	}
}
