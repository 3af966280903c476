package awsefs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsapi "github.com/aws/aws-sdk-go-v2/service/efs"
	"github.com/aws/aws-sdk-go-v2/service/efs/types"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// CreateAccessPoint makes an access point, which may still be in state Creating when it returns. Repeated with the
// same token it returns the one that is there; it fails if that one has another path or user.
func (c *Client) CreateAccessPoint(ctx context.Context, r efs.AccessPointRequest) (efs.AccessPoint, error) {
	input := awsapi.CreateAccessPointInput{
		ClientToken: &r.Token, FileSystemId: &r.FileSystemID, RootDirectory: &types.RootDirectory{Path: &r.Path}, Tags: tagList(r.Tags),
		PosixUser: &types.PosixUser{Uid: aws.Int64(int64(r.User.UID)), Gid: aws.Int64(int64(r.User.GID))},
	}
	answer, err := observed(ctx, c, "CreateAccessPoint", func(ctx context.Context, options ...func(*awsapi.Options)) (*awsapi.CreateAccessPointOutput, error) {
		return c.api.CreateAccessPoint(ctx, &input, options...)
	})
	if exists := (*types.AccessPointAlreadyExists)(nil); errors.As(err, &exists) {
		return c.existing(ctx, aws.ToString(exists.AccessPointId), r)
	}
	if err != nil {
		return efs.AccessPoint{}, fmt.Errorf("creating an access point of %s: %w", r.FileSystemID, err)
	}
	return accessPoint(types.AccessPointDescription{
		AccessPointId: answer.AccessPointId, FileSystemId: answer.FileSystemId, LifeCycleState: answer.LifeCycleState,
		ClientToken: answer.ClientToken, RootDirectory: answer.RootDirectory, PosixUser: answer.PosixUser, Tags: answer.Tags,
	}), nil
}

// existing describes the access point that an earlier request with the same token has made.
func (c *Client) existing(ctx context.Context, id string, r efs.AccessPointRequest) (efs.AccessPoint, error) {
	point, found, err := c.FindAccessPoint(ctx, id)
	if err != nil {
		return efs.AccessPoint{}, err
	}
	if !found || point.FileSystemID != r.FileSystemID || point.Path != r.Path || point.User == nil || *point.User != r.User {
		return efs.AccessPoint{}, fmt.Errorf("creating an access point of %s: access point %s has the token %s already, and another file system, path or user",
			r.FileSystemID, id, r.Token)
	}
	return point, nil
}

// DeleteAccessPoint deletes an access point; its directory stays. It succeeds if there is none.
func (c *Client) DeleteAccessPoint(ctx context.Context, id string) error {
	_, err := observed(ctx, c, "DeleteAccessPoint", func(ctx context.Context, options ...func(*awsapi.Options)) (*awsapi.DeleteAccessPointOutput, error) {
		return c.api.DeleteAccessPoint(ctx, &awsapi.DeleteAccessPointInput{AccessPointId: &id}, options...)
	})
	if notFound := (*types.AccessPointNotFound)(nil); err != nil && !errors.As(err, &notFound) {
		return fmt.Errorf("deleting access point %s: %w", id, err)
	}
	return nil
}

// TagAccessPoint adds tags to an access point, or changes their values.
func (c *Client) TagAccessPoint(ctx context.Context, id string, tags map[string]string) error {
	_, err := observed(ctx, c, "TagResource", func(ctx context.Context, options ...func(*awsapi.Options)) (*awsapi.TagResourceOutput, error) {
		return c.api.TagResource(ctx, &awsapi.TagResourceInput{ResourceId: &id, Tags: tagList(tags)}, options...)
	})
	if err != nil {
		return fmt.Errorf("tagging access point %s: %w", id, err)
	}
	return nil
}

// ListAccessPoints lists all access points of a file system, in any state.
func (c *Client) ListAccessPoints(ctx context.Context, fileSystemID string) ([]efs.AccessPoint, error) {
	points := []efs.AccessPoint{}
	most := int32(pointsPerPage)
	pages := awsapi.NewDescribeAccessPointsPaginator(c.api, &awsapi.DescribeAccessPointsInput{FileSystemId: &fileSystemID, MaxResults: &most})
	for pages.HasMorePages() {
		page, err := observed(ctx, c, "DescribeAccessPoints", pages.NextPage)
		if err != nil {
			return nil, fmt.Errorf("listing access points of %s: %w", fileSystemID, err)
		}
		for _, description := range page.AccessPoints {
			points = append(points, accessPoint(description))
		}
	}
	return points, nil
}

// pointsPerPage is the API's maximum.
const pointsPerPage = 1000

// FindAccessPoint describes one access point. It is not found only when the API answers
// AccessPointNotFound.
func (c *Client) FindAccessPoint(ctx context.Context, id string) (point efs.AccessPoint, found bool, err error) {
	answer, err := observed(ctx, c, "DescribeAccessPoints", func(ctx context.Context, options ...func(*awsapi.Options)) (*awsapi.DescribeAccessPointsOutput, error) {
		return c.api.DescribeAccessPoints(ctx, &awsapi.DescribeAccessPointsInput{AccessPointId: &id}, options...)
	})
	if notFound := (*types.AccessPointNotFound)(nil); errors.As(err, &notFound) {
		return efs.AccessPoint{}, false, nil
	}
	if err != nil {
		return efs.AccessPoint{}, false, fmt.Errorf("asking for access point %s: %w", id, err)
	}
	for _, description := range answer.AccessPoints {
		if point = accessPoint(description); point.ID == id {
			return point, true, nil
		}
	}
	return efs.AccessPoint{}, false, fmt.Errorf("asking for access point %s: the answer is about none, or another one", id)
}

func accessPoint(d types.AccessPointDescription) efs.AccessPoint {
	point := efs.AccessPoint{
		ID:           aws.ToString(d.AccessPointId),
		FileSystemID: aws.ToString(d.FileSystemId),
		State:        efs.LifeCycleState(d.LifeCycleState),
		Token:        aws.ToString(d.ClientToken),
		Path:         "/",
		Tags:         tagsOf(d.Tags),
	}
	if d.RootDirectory != nil {
		point.Path = cmp.Or(aws.ToString(d.RootDirectory.Path), "/")
	}
	if u := d.PosixUser; u != nil {
		point.User = &efs.PosixUser{UID: uint32(aws.ToInt64(u.Uid)), GID: uint32(aws.ToInt64(u.Gid))}
	}
	return point
}

func tagList(tags map[string]string) (list []types.Tag) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, types.Tag{Key: &key, Value: aws.String(tags[key])})
	}
	return list
}
