package main

import (
	"context"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/awsplace"
	"gnuthought.com/efs-stunnel/pkg/controller/discovery"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

// lateVPC stands before the API while the loops were made without knowing the nodes' VPC. It
// asks for that before each listing, and from the first answer on leaves out the mount targets
// of others, as the loops do when they know it.
type lateVPC struct {
	discovery.API
	vpc *awsplace.VPC
}

// ListFileSystems implements discovery.API.
func (l lateVPC) ListFileSystems(ctx context.Context) (efs.Listing, error) {
	id := l.vpc.ID(ctx)
	listing, err := l.API.ListFileSystems(ctx)
	if err != nil || id == "" {
		return listing, err
	}
	return within(listing, id), nil
}

// within is a listing without the mount targets of other VPCs. Its file systems are all there:
// one that has a port must not look missing.
func within(listing efs.Listing, vpcID string) efs.Listing {
	listing.FileSystems = slices.Clone(listing.FileSystems)
	for i := range listing.FileSystems {
		fs := &listing.FileSystems[i]
		fs.MountTargets = slices.DeleteFunc(slices.Clone(fs.MountTargets), func(t efs.MountTarget) bool { return t.VPCID != vpcID })
	}
	return listing
}
