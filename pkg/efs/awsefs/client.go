// Package awsefs reads file systems, mount targets and access points from the Amazon EFS API, and makes and deletes
// access points.
// It is the only user of the AWS SDK's EFS client.
package awsefs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsapi "github.com/aws/aws-sdk-go-v2/service/efs"
	"github.com/aws/aws-sdk-go-v2/service/efs/types"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// Options configure the client.
type Options struct {
	CallTimeout time.Duration // bounds one call with all its retries by the SDK
	Parallel    int           // the number of file systems whose mount targets are listed at once
	// Observe is called after every call; the result is "success", the API's error code, "Timeout",
	// "Canceled" or "Unreachable".
	Observe func(operation, result string, took time.Duration)
	Now     func() time.Time // the clock
}

// Client calls the API of one region.
type Client struct {
	options Options
	api     *awsapi.Client
}

// New makes a client; it calls nothing.
func New(config aws.Config, options Options) *Client {
	return &Client{options: options, api: awsapi.NewFromConfig(config)}
}

// ListFileSystems lists all file systems with their mount targets, also those that the cluster may not
// use: one that has a port must not count as missing. It fails when not all file systems can be listed;
// those whose mount targets cannot be read are in the listing's Failed.
func (c *Client) ListFileSystems(ctx context.Context) (efs.Listing, error) {
	listing, owners := efs.Listing{ReadAt: c.options.Now()}, map[string]bool{}
	pages := awsapi.NewDescribeFileSystemsPaginator(c.api, &awsapi.DescribeFileSystemsInput{})
	for pages.HasMorePages() {
		page, err := observed(ctx, c, "DescribeFileSystems", pages.NextPage)
		if err != nil {
			return efs.Listing{}, fmt.Errorf("listing file systems: %w", err)
		}
		for _, description := range page.FileSystems {
			listing.FileSystems = append(listing.FileSystems, fileSystem(description))
			owners[aws.ToString(description.OwnerId)] = true
		}
	}
	listing.Source = sourceOf(owners, c.api.Options().Region)
	c.addMountTargets(ctx, &listing)
	listing.Complete = len(listing.Failed) == 0
	return listing, nil
}

// addMountTargets lists the mount targets of each file system in a call of its own, as the API requires.
// The failure of one does not affect the others.
func (c *Client) addMountTargets(ctx context.Context, listing *efs.Listing) {
	var group errgroup.Group
	group.SetLimit(c.options.Parallel)
	var mu sync.Mutex // protects listing.Failed
	for i := range listing.FileSystems {
		fs := &listing.FileSystems[i]
		group.Go(func() error {
			targets, err := c.mountTargets(ctx, fs.ID)
			if err == nil {
				fs.MountTargets = targets
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if listing.Failed == nil {
				listing.Failed = make(map[string]error)
			}
			listing.Failed[fs.ID] = err
			return nil
		})
	}
	_ = group.Wait() // each failure is in the listing
}

func (c *Client) mountTargets(ctx context.Context, fileSystemID string) ([]efs.MountTarget, error) {
	targets := []efs.MountTarget{}
	pages := awsapi.NewDescribeMountTargetsPaginator(c.api, &awsapi.DescribeMountTargetsInput{FileSystemId: &fileSystemID})
	for pages.HasMorePages() {
		page, err := observed(ctx, c, "DescribeMountTargets", pages.NextPage)
		if err != nil {
			return nil, fmt.Errorf("listing mount targets of %s: %w", fileSystemID, err)
		}
		for _, description := range page.MountTargets {
			targets = append(targets, mountTarget(description))
		}
	}
	return targets, nil
}

// FileSystemExists describes one file system. It is false only when the API answers FileSystemNotFound.
func (c *Client) FileSystemExists(ctx context.Context, id string) (bool, error) {
	_, err := called(ctx, c, "DescribeFileSystems", c.api.DescribeFileSystems, &awsapi.DescribeFileSystemsInput{FileSystemId: &id})
	if notFound := (*types.FileSystemNotFound)(nil); errors.As(err, &notFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking for file system %s: %w", id, err)
	}
	return true, nil
}

// observed makes one call with a timeout, and reports it to Options.Observe.
func observed[T any](ctx context.Context, c *Client, operation string, call func(context.Context, ...func(*awsapi.Options)) (T, error)) (T, error) {
	begin := c.options.Now()
	limited, cancel := context.WithTimeout(ctx, c.options.CallTimeout)
	defer cancel()
	answer, err := call(limited)
	c.options.Observe(operation, resultOf(limited, err), c.options.Now().Sub(begin))
	return answer, err
}

// called is observed for a call that is not of a paginator.
func called[In, Out any](ctx context.Context, c *Client, operation string, call func(context.Context, In, ...func(*awsapi.Options)) (Out, error), input In) (Out, error) {
	return observed(ctx, c, operation, func(ctx context.Context, options ...func(*awsapi.Options)) (Out, error) {
		return call(ctx, input, options...)
	})
}

func resultOf(ctx context.Context, err error) string {
	if err == nil {
		return "success"
	}
	if code := smithy.APIError(nil); errors.As(err, &code) {
		return code.ErrorCode()
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "Timeout"
	case ctx.Err() != nil:
		return "Canceled"
	}
	return "Unreachable"
}

func fileSystem(d types.FileSystemDescription) efs.FileSystem {
	fs := efs.FileSystem{
		ID:               aws.ToString(d.FileSystemId),
		State:            efs.LifeCycleState(d.LifeCycleState),
		AvailabilityZone: aws.ToString(d.AvailabilityZoneName),
		Tags:             tagsOf(d.Tags),
	}
	fs.Name = fs.Tags["Name"]
	if d.SizeInBytes != nil {
		fs.SizeBytes = d.SizeInBytes.Value
	}
	if p := d.FileSystemProtection; p != nil {
		fs.ReplicationDestination = p.ReplicationOverwriteProtection == types.ReplicationOverwriteProtectionReplicating
	}
	return fs
}

// sourceOf returns the account that owns the listed file systems, and the region; "" if it is unknown. The
// API lists the file systems of one account only.
func sourceOf(owners map[string]bool, region string) string {
	if all := slices.Collect(maps.Keys(owners)); len(all) == 1 && all[0] != "" {
		return all[0] + "/" + region
	}
	return ""
}

func mountTarget(d types.MountTargetDescription) efs.MountTarget {
	t := efs.MountTarget{
		SubnetID: aws.ToString(d.SubnetId),
		VPCID:    aws.ToString(d.VpcId),
		ZoneName: aws.ToString(d.AvailabilityZoneName),
		State:    efs.LifeCycleState(d.LifeCycleState),
	}
	// Each is invalid where the mount target has no address of that family.
	t.Address, _ = netip.ParseAddr(aws.ToString(d.IpAddress))
	t.IPv6, _ = netip.ParseAddr(aws.ToString(d.Ipv6Address))
	return t
}

func tagsOf(list []types.Tag) map[string]string {
	tags := make(map[string]string, len(list))
	for _, tag := range list {
		tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	return tags
}

// CreateAccessPoint makes an access point with a user on a directory that exists. It may still be in state Creating
// when it returns. Repeated with the same token it returns the one that is there; it fails if that one has another
// path or user.
func (c *Client) CreateAccessPoint(ctx context.Context, r efs.AccessPoint) (efs.AccessPoint, error) {
	input := awsapi.CreateAccessPointInput{
		ClientToken: &r.Token, FileSystemId: &r.FileSystemID, RootDirectory: &types.RootDirectory{Path: &r.Path}, Tags: tagList(r.Tags),
		PosixUser: &types.PosixUser{Uid: aws.Int64(int64(r.User.UID)), Gid: aws.Int64(int64(r.User.GID))},
	}
	answer, err := called(ctx, c, "CreateAccessPoint", c.api.CreateAccessPoint, &input)
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
func (c *Client) existing(ctx context.Context, id string, r efs.AccessPoint) (efs.AccessPoint, error) {
	point, found, err := c.FindAccessPoint(ctx, id)
	if err != nil {
		return efs.AccessPoint{}, err
	}
	if !found || point.FileSystemID != r.FileSystemID || point.Path != r.Path || point.User == nil || *point.User != *r.User {
		return efs.AccessPoint{}, fmt.Errorf("creating an access point of %s: access point %s has the token %s already, and another file system, path or user",
			r.FileSystemID, id, r.Token)
	}
	return point, nil
}

// DeleteAccessPoint deletes an access point; its directory stays. It succeeds if there is none.
func (c *Client) DeleteAccessPoint(ctx context.Context, id string) error {
	_, err := called(ctx, c, "DeleteAccessPoint", c.api.DeleteAccessPoint, &awsapi.DeleteAccessPointInput{AccessPointId: &id})
	if notFound := (*types.AccessPointNotFound)(nil); err != nil && !errors.As(err, &notFound) {
		return fmt.Errorf("deleting access point %s: %w", id, err)
	}
	return nil
}

// ListAccessPoints lists all access points of a file system, in any state.
func (c *Client) ListAccessPoints(ctx context.Context, fileSystemID string) ([]efs.AccessPoint, error) {
	points := []efs.AccessPoint{}
	pages := awsapi.NewDescribeAccessPointsPaginator(c.api, &awsapi.DescribeAccessPointsInput{
		FileSystemId: &fileSystemID, MaxResults: aws.Int32(1000), // the API's maximum
	})
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

// FindAccessPoint describes one access point. It is not found only when the API answers
// AccessPointNotFound.
func (c *Client) FindAccessPoint(ctx context.Context, id string) (point efs.AccessPoint, found bool, err error) {
	answer, err := called(ctx, c, "DescribeAccessPoints", c.api.DescribeAccessPoints, &awsapi.DescribeAccessPointsInput{AccessPointId: &id})
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
