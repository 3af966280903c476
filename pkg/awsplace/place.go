// Package awsplace finds out where in AWS a cluster is: its region and its VPC.
package awsplace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// metadataTimeout bounds all questions of one try to the instance metadata service. Outside EC2,
// and where pods may not reach it, there is no answer at all.
const metadataTimeout = 3 * time.Second

// Place is where the cluster's nodes are.
type Place struct {
	Region string
	VPCID  string // "" when unknown
}

// Metadata is the instance metadata service.
type Metadata interface {
	Region(ctx context.Context) (string, error)
	VPCID(ctx context.Context) (string, error)
}

// Finder knows whom to ask. What is set needs no asking.
type Finder struct {
	Region   string // the administrator's, else that of the SDK's environment and files; "" for none
	VPCID    string // the administrator's; "" for none
	Metadata Metadata
	// NodeRegion is the region that the nodes' labels name, "" if none does. It may wait for
	// the apiserver.
	NodeRegion func(ctx context.Context) (string, error)
	Log        *slog.Logger
}

// Find asks in order: settings, metadata, nodes. Without a region there is an error, as no API
// can be asked; without a VPC there is none, and mount targets of any VPC count until LateVPC
// knows better.
func (f Finder) Find(ctx context.Context) (Place, error) {
	asking, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	region, refused := f.Region, error(nil)
	if region == "" {
		region, refused = f.Metadata.Region(asking)
	}
	if region == "" {
		var err error
		if region, err = f.NodeRegion(ctx); err != nil {
			return Place{}, fmt.Errorf("looking for the AWS region: %w", err)
		}
	}
	if region == "" {
		return Place{}, fmt.Errorf("%w (instance metadata: %w)", errNoRegion, refused)
	}
	return Place{Region: region, VPCID: f.findVPC(asking)}, nil
}

var errNoRegion = errors.New("the AWS region is not known: set --aws-region or AWS_REGION, " +
	"let pods reach the instance metadata service, or label nodes with topology.kubernetes.io/region")

func (f Finder) findVPC(ctx context.Context) string {
	if f.VPCID != "" {
		return f.VPCID
	}
	id, err := f.Metadata.VPCID(ctx)
	if err != nil {
		f.Log.Warn("VPC of the nodes is not known, so mount targets of any VPC are used until it is; set --vpc-id", "err", err)
		return ""
	}
	return id
}

// suffixes are those of partitions other than the usual ones, by how their regions' names begin.
var suffixes = []struct{ region, suffix string }{
	{"cn-", "amazonaws.com.cn"},
	{"eusc-", "amazonaws.eu"},
	{"us-iso-", "c2s.ic.gov"},
	{"us-isob-", "sc2s.sgov.gov"},
	{"us-isof-", "csp.hci.ic.gov"},
	{"eu-isoe-", "cloud.adc-e.uk"},
}

// DNSSuffix is what follows a file system's id and a dot in its name: efs.us-east-1.amazonaws.com.
func DNSSuffix(region string) string {
	suffix := "amazonaws.com"
	for _, s := range suffixes {
		if strings.HasPrefix(region, s.region) {
			suffix = s.suffix
		}
	}
	return "efs." + region + "." + suffix
}
