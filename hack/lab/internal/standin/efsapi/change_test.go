package efsapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/efs"
	"github.com/aws/aws-sdk-go-v2/service/efs/types"
	"github.com/google/go-cmp/cmp"
)

func pointRequest(token, path string) *efs.CreateAccessPointInput {
	return &efs.CreateAccessPointInput{
		ClientToken: &token, FileSystemId: new(shared), RootDirectory: &types.RootDirectory{Path: &path},
		PosixUser: &types.PosixUser{Uid: aws.Int64(1000), Gid: aws.Int64(50000)},
		Tags:      []types.Tag{{Key: new("Name"), Value: new("one")}},
	}
}

func TestAccessPointsAreCreatedTaggedAndDeleted(t *testing.T) {
	b := newBench(t)
	created, err := b.client().CreateAccessPoint(t.Context(), pointRequest("pvc-1", "/a/b"))
	if err != nil {
		t.Fatal(err)
	}
	id := created.AccessPointId
	if created.LifeCycleState != types.LifeCycleStateCreating {
		t.Errorf("the answer says %s", created.LifeCycleState)
	}
	_, err = b.client().CreateAccessPoint(t.Context(), pointRequest("pvc-1", "/a/b"))
	if exists := (*types.AccessPointAlreadyExists)(nil); !errors.As(err, &exists) || *exists.AccessPointId != *id {
		t.Errorf("with a token that is used: %v", err)
	}
	if _, err := b.client().TagResource(t.Context(), &efs.TagResourceInput{ResourceId: id, Tags: []types.Tag{{Key: new("kept"), Value: new("yes")}}}); err != nil {
		t.Fatal(err)
	}
	answer, err := b.client().DescribeAccessPoints(t.Context(), &efs.DescribeAccessPointsInput{AccessPointId: id})
	if err != nil {
		t.Fatal(err)
	}
	point := answer.AccessPoints[0]
	got := []any{point.LifeCycleState, *point.ClientToken, *point.RootDirectory.Path, *point.PosixUser.Uid, *point.PosixUser.Gid, *point.Name, len(point.Tags)}
	want := []any{types.LifeCycleStateAvailable, "pvc-1", "/a/b", int64(1000), int64(50000), "one", 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("access point (-want +got):\n%s", diff)
	}
	if _, err := b.client().DeleteAccessPoint(t.Context(), &efs.DeleteAccessPointInput{AccessPointId: id}); err != nil {
		t.Fatal(err)
	}
	_, err = b.client().DeleteAccessPoint(t.Context(), &efs.DeleteAccessPointInput{AccessPointId: id})
	if got, want := resultOf(err), (result{"AccessPointNotFound", 404}); got != want {
		t.Errorf("deleted twice: %v", err)
	}
}

func TestRefusedChangesHaveTheCodesOfEFS(t *testing.T) {
	b := newBench(t)
	create := func(change func(*efs.CreateAccessPointInput)) error {
		in := pointRequest("pvc-2", "/a")
		change(in)
		_, err := b.client().CreateAccessPoint(t.Context(), in)
		return err
	}
	_, unknown := b.client().TagResource(t.Context(), &efs.TagResourceInput{ResourceId: new("fsap-1"), Tags: []types.Tag{}})
	tests := map[string]struct {
		err  error
		want result
	}{
		"no file system": {create(func(in *efs.CreateAccessPointInput) { in.FileSystemId = new("fs-00000000000000bad") }), result{"FileSystemNotFound", 404}},
		"long token":     {create(func(in *efs.CreateAccessPointInput) { in.ClientToken = new(strings.Repeat("x", 65)) }), result{"BadRequest", 400}},
		"deep path":      {create(func(in *efs.CreateAccessPointInput) { in.RootDirectory.Path = new("/a/b/c/d/e") }), result{"BadRequest", 400}},
		"tag of none":    {unknown, result{"AccessPointNotFound", 404}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, resultOf(tt.err)); diff != "" {
				t.Errorf("%v (-want +got):\n%s", tt.err, diff)
			}
		})
	}
}
