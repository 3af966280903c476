package awsplace

import (
	"context"
	"log/slog"
)

// VPC finds out the VPC of the nodes when instance metadata does not answer at the start, as
// while a node boots. It is for one caller at a time.
type VPC struct {
	metadata Metadata
	log      *slog.Logger
	id       string // "" until it is known
}

// LateVPC is for a Place without a VPC. It asks nothing yet.
func (f Finder) LateVPC() *VPC { return &VPC{metadata: f.Metadata, log: f.Log} }

// ID asks until there is an answer, for at most 3 s each time; "" while there is none, of which
// Find has told already.
func (v *VPC) ID(ctx context.Context) string {
	if v.id != "" {
		return v.id
	}
	asking, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	id, err := v.metadata.VPCID(asking)
	if err != nil {
		v.log.Debug("VPC of the nodes is still not known", "err", err)
		return ""
	}
	if id != "" {
		v.id = id
		v.log.Info("VPC of the nodes is known now; mount targets of others are not used any more", "reason", id)
	}
	return id
}
