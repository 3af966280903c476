package awsefs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
		{ID: "fsap-1", FileSystemID: "fs-1", State: efs.Available, Path: "/one", Tags: map[string]string{}},
		{ID: "fsap-2", FileSystemID: "fs-1", State: efs.Creating, Path: "/", Tags: map[string]string{}},
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

// change makes and deletes access points. Of two requests with one token it refuses the second, as the API does.
func (s *server) change(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	at := slices.IndexFunc(s.points, func(p map[string]any) bool { return p["AccessPointId"] == id })
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch {
	case r.Method == http.MethodDelete && at < 0:
		refuse(w, http.StatusNotFound, "AccessPointNotFound", "")
	case r.Method == http.MethodDelete:
		s.points = slices.Delete(s.points, at, at+1)
		w.WriteHeader(http.StatusNoContent)
	default:
		for _, point := range s.points {
			if point["ClientToken"] == body["ClientToken"] {
				refuse(w, http.StatusConflict, "AccessPointAlreadyExists", fmt.Sprint(point["AccessPointId"]))
				return
			}
		}
		body["AccessPointId"], body["LifeCycleState"] = fmt.Sprintf("fsap-%d", len(s.points)+1), "creating"
		s.points = append(s.points, body)
		_ = json.NewEncoder(w).Encode(body)
	}
}

func refuse(w http.ResponseWriter, status int, code, accessPoint string) {
	w.Header().Set("x-amzn-ErrorType", code)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"ErrorCode": code, "Message": "no", "AccessPointId": accessPoint})
}

func TestAccessPointIsMadeOnce(t *testing.T) {
	client, seen := newClient(t, &server{})
	request := efs.AccessPoint{
		Token: "pvc-1", FileSystemID: "fs-1", Path: "/a/b", User: &efs.PosixUser{UID: 1000, GID: 50000},
		Tags: map[string]string{"b": "2", "a": "1"},
	}
	want := efs.AccessPoint{
		ID: "fsap-1", FileSystemID: "fs-1", State: efs.Creating, Token: "pvc-1", Path: "/a/b",
		User: &efs.PosixUser{UID: 1000, GID: 50000}, Tags: request.Tags,
	}
	for range 2 {
		got, err := client.CreateAccessPoint(t.Context(), request)
		if diff := gocmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v; access point mismatch (-want +got):\n%s", err, diff)
		}
	}
	if seen.counts["CreateAccessPoint success"] != 1 || seen.counts["CreateAccessPoint AccessPointAlreadyExists"] != 1 {
		t.Errorf("calls %v", seen.counts)
	}
	request.User.UID = 0
	if _, err := client.CreateAccessPoint(t.Context(), request); err == nil || !strings.Contains(err.Error(), "fsap-1 has the token pvc-1 already") {
		t.Errorf("for another user: %v", err)
	}
}

func TestAccessPointIsDeleted(t *testing.T) {
	client, _ := newClient(t, &server{points: []map[string]any{describedPoint("fsap-1", "fs-1", "/one")}})
	for range 2 { // the second finds none
		if err := client.DeleteAccessPoint(t.Context(), "fsap-1"); err != nil {
			t.Error(err)
		}
	}
}
