// Package awsefs reads file systems, mount targets and access points from the Amazon EFS API, and makes and deletes
// access points.
// It is the only user of the AWS SDK's EFS client.
package awsefs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	_, err := observed(ctx, c, "DescribeFileSystems", func(ctx context.Context, options ...func(*awsapi.Options)) (*awsapi.DescribeFileSystemsOutput, error) {
		return c.api.DescribeFileSystems(ctx, &awsapi.DescribeFileSystemsInput{FileSystemId: &id}, options...)
	})
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
	if len(owners) != 1 || owners[""] {
		return ""
	}
	for owner := range owners {
		return owner + "/" + region
	}
	return ""
}

func mountTarget(d types.MountTargetDescription) efs.MountTarget {
	t := efs.MountTarget{
		ID:           aws.ToString(d.MountTargetId),
		FileSystemID: aws.ToString(d.FileSystemId),
		SubnetID:     aws.ToString(d.SubnetId),
		VPCID:        aws.ToString(d.VpcId),
		ZoneName:     aws.ToString(d.AvailabilityZoneName),
		State:        efs.LifeCycleState(d.LifeCycleState),
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
