package main

import (
	"context"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/pkg/manager/table"
)

// lateVPC wraps the API if the VPC of the nodes was unknown when the loops were made. It requests the
// VPC before each listing, and once it is known leaves out mount targets of other VPCs, as the loops do
// that know the VPC from the start.
type lateVPC struct {
	table.API
	finder *topology.Finder
}

// ListFileSystems implements table.API.
func (l lateVPC) ListFileSystems(ctx context.Context) (efs.Listing, error) {
	id := l.finder.LateVPC(ctx)
	listing, err := l.API.ListFileSystems(ctx)
	if err != nil || id == "" {
		return listing, err
	}
	// All file systems stay: one that has a port must not be taken for missing.
	listing.FileSystems = slices.Clone(listing.FileSystems)
	for i := range listing.FileSystems {
		fs := &listing.FileSystems[i]
		fs.MountTargets = slices.DeleteFunc(slices.Clone(fs.MountTargets), func(t efs.MountTarget) bool { return t.VPCID != id })
	}
	return listing, nil
}
