package efs_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

func TestParseTags(t *testing.T) {
	tests := map[string]struct {
		list string
		want map[string]string
		err  string // a part of it
	}{
		"an empty list has no tags":       {},
		"spaces and a last comma":         {list: " team=a ,env=x=y,", want: map[string]string{"team": "a", "env": "x=y"}},
		"a tag may have an empty value":   {list: "shared=", want: map[string]string{"shared": ""}},
		"a tag without a value":           {list: "team", err: `"team" is no tag: want key=value`},
		"a tag without a key":             {list: "=a", err: `"=a" is no tag: want key=value`},
		"a tag with two different values": {list: "team=a,team=b", err: `"b" is the second value of tag "team"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := efs.ParseTags(tt.list)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tags mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExclusionNamesWhatToDo(t *testing.T) {
	fs := efs.FileSystem{ID: "fs-1", Tags: map[string]string{"team": "a"}}
	for want, filter := range map[string]efs.Filter{
		"": {IDs: []string{"fs-1"}, Tags: map[string]string{"team": "a"}},
		"it is not one of --file-system-ids: add it there": {IDs: []string{"fs-0"}},
		"it lacks the tag efs-stunnel=true of --file-system-tags: aws efs tag-resource --resource-id fs-1 --tags Key=efs-stunnel,Value=true": {Tags: map[string]string{"efs-stunnel": "true", "team": "a"}},
	} {
		if got := filter.Exclusion(fs); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestMatch(t *testing.T) {
	fs := efs.FileSystem{ID: "fs-1", Tags: map[string]string{"team": "a", "env": "test"}}
	tests := map[string]struct {
		filter efs.Filter
		want   bool
	}{
		"the zero filter takes all":   {efs.Filter{}, true},
		"one of the ids":              {efs.Filter{IDs: []string{"fs-0", "fs-1"}}, true},
		"none of the ids":             {efs.Filter{IDs: []string{"fs-0"}}, false},
		"all of the tags":             {efs.Filter{Tags: map[string]string{"team": "a", "env": "test"}}, true},
		"one tag has another value":   {efs.Filter{Tags: map[string]string{"team": "a", "env": "prod"}}, false},
		"a missing tag is not empty":  {efs.Filter{Tags: map[string]string{"owner": ""}}, false},
		"ids and tags must both hold": {efs.Filter{IDs: []string{"fs-0"}, Tags: map[string]string{"team": "a"}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.filter.Match(fs); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestIDs(t *testing.T) {
	good := []string{"fs-34a3p3", "fs-0123456789abcdef0", "fs-" + strings.Repeat("a", 40)}
	bad := []string{"", "fs-", "fs-A", "fs-1\n", "fs-1/..", "fs-1.2", "xfs-1", "fs-" + strings.Repeat("a", 41), "fsap-1"}
	for _, id := range good {
		if err := efs.CheckFileSystemID(id); err != nil {
			t.Error(err)
		}
		if err := efs.CheckAccessPointID("fsap-" + strings.TrimPrefix(id, "fs-")); err != nil {
			t.Error(err)
		}
	}
	for _, id := range bad {
		if efs.CheckFileSystemID(id) == nil {
			t.Errorf("file system id %q is accepted", id)
		}
		if id != "fsap-1" && efs.CheckAccessPointID(id) == nil {
			t.Errorf("access point id %q is accepted", id)
		}
	}
}
