package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awslogging "github.com/aws/smithy-go/logging"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/efs/awsconfig"
	"gnuthought.com/efs-stunnel/pkg/efs/awsefs"
	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/clock"
	"gnuthought.com/efs-stunnel/pkg/manager/accesspoints"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/manager/table"
	"gnuthought.com/efs-stunnel/pkg/manager/workers"
)

// Limits of requests to the EFS API: a thousand file systems are listed in some seconds, below the rate limits.
const (
	efsCallTimeout = 30 * time.Second
	efsParallel    = 4
)

func (m *manager) wire(ctx context.Context) (workload, error) {
	var cluster string
	if err := m.retry(ctx, "asking which cluster this is", nil, func(ctx context.Context) (err error) {
		cluster, err = loops.ClusterUID(ctx, m.clients.work)
		return err
	}); err != nil {
		return workload{}, err
	}
	api, network, err := m.efsAPI(ctx)
	if err != nil {
		return workload{}, err
	}
	l, err := loops.New(m.clients.work, api, m.loopOptions(cluster, network))
	if err != nil {
		return workload{}, fmt.Errorf("making the loops: %w", err)
	}
	return workload{caches: l.Caches, loops: l}, nil
}

func (m *manager) loopOptions(cluster string, network topology.Network) loops.Options {
	settings := m.options.loops
	settings.Cluster, settings.VPCID = cluster, network.VPCID // the setting, or what was found
	return loops.Options{
		Settings:  settings,
		DNSSuffix: topology.DNSSuffix(network.Region),
		Workers: workers.Options{
			Host: m.options.podIP, Port: m.options.workerPort, Reviews: m.clients.reviews.AuthenticationV1().TokenReviews(),
		},
		Now: m.clock.Now,

		JobsClient:    m.clients.jobs,
		BindingClient: m.clients.bindings,
		Metadata:      m.clients.lists,
		Dynamic:       m.clients.shared,
		Leader:        hostName(),
		ClockWrong:    m.clock.Wrong,

		Events:  m.events,
		Metrics: m.program.Metrics,
		Log:     m.log,
	}
}

// efsAPI returns nil when only pinned targets are used, which needs nothing of AWS.
func (m *manager) efsAPI(ctx context.Context) (table.API, topology.Network, error) {
	if m.options.discovery == wellknown.DiscoveryNone {
		return nil, topology.Network{}, nil
	}
	// Without a region, the SDK reads its environment and files.
	loaded, err := awsConfiguration(ctx, m.options.region, m.program.SDKLogger())
	if err != nil {
		return nil, topology.Network{}, err
	}
	finder := &topology.Finder{
		Region: loaded.Region, VPCID: m.options.loops.VPCID,
		Metadata: topology.MetadataFromConfig(loaded), NodeRegion: m.nodeRegion, Log: m.log,
	}
	network, err := finder.Find(ctx)
	if err != nil {
		return nil, topology.Network{}, err
	}
	m.log.Info("discovery uses Amazon EFS", "region", network.Region, "vpc", network.VPCID)
	if loaded.Region == "" { // and the clients in it that get credentials have none either
		if loaded, err = awsConfiguration(ctx, network.Region, m.program.SDKLogger()); err != nil {
			return nil, topology.Network{}, err
		}
	}
	client := awsefs.New(loaded, awsefs.Options{
		CallTimeout: efsCallTimeout, Parallel: efsParallel,
		Observe: m.metrics.observeCall, Now: time.Now, // the discovery loop filters: a file system with a port must not be taken for missing
	})
	if network.VPCID == "" {
		return lateVPC{efsClient: client, finder: finder}, network, nil
	}
	return client, network, nil
}

func awsConfiguration(ctx context.Context, region string, log awslogging.Logger) (aws.Config, error) {
	loaded, err := awsconfig.Load(ctx, config.WithRegion(region), config.WithLogger(log))
	if err != nil {
		return aws.Config{}, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	return loaded, nil
}

// nodeRegion returns the region in the labels of any node; a cluster is in one region.
func (m *manager) nodeRegion(ctx context.Context) (region string, err error) {
	err = m.retry(ctx, "asking nodes for their region", nil, func(ctx context.Context) error {
		nodes, err := m.clients.work.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: corev1.LabelTopologyRegion, Limit: 1})
		if err == nil && len(nodes.Items) > 0 {
			region = nodes.Items[0].Labels[corev1.LabelTopologyRegion]
		}
		return err
	})
	return region, err
}

// Limits of the clients for events, Lease and workers' tokens, which neither wait for the loops nor delay them.
const (
	eventQPS, eventBurst   = 50, 100 // of warnings, and as many of other events
	leaseQPS, leaseBurst   = 10, 20
	reviewQPS, reviewBurst = 10, 50
)

type clients struct {
	work     kubernetes.Interface // of caches and loops
	jobs     kubernetes.Interface // of the loop of mount Jobs, with a limit of its own
	bindings kubernetes.Interface // of the loop that binds claims, likewise
	shared   dynamic.Interface    // of the same, for SharedVolumes
	lists    metadata.Interface   // of the same, for the names and versions of all objects
	warnings kubernetes.Interface // events of this type
	events   kubernetes.Interface // of all others
	lease    kubernetes.Interface
	reviews  kubernetes.Interface // of workers' tokens
}

func newClients(config *rest.Config, o options, base *client.Program, apiClock *clock.Clock) (clients, error) {
	var c clients
	config = base.Configure(config, "efs-stunnel-manager")
	config.Wrap(apiClock.Wrap)
	config.QPS, config.Burst = o.qps, o.burst
	var errs [9]error
	c.work, errs[0] = client.NewClient(config, o.qps, o.burst, 0)
	// Everything waits for a Job. Its requests must not wait for those of the volumes before.
	c.jobs, errs[6] = client.NewClient(config, o.qps, o.burst, 0)
	// A claim that is bound needs more writes than its volume did, and volumes must not wait for them.
	c.bindings, errs[8] = client.NewClient(config, o.qps, o.burst, 0)
	c.warnings, errs[7] = client.NewClient(config, eventQPS, eventBurst, client.EventTimeout)
	c.events, errs[1] = client.NewClient(config, eventQPS, eventBurst, client.EventTimeout)
	// As in Kubernetes' own programs, so that one request that hangs does not cost the Lease.
	c.lease, errs[2] = client.NewClient(config, leaseQPS, leaseBurst, o.lease.RenewDeadline/2)
	c.shared, errs[3] = dynamic.NewForConfig(config)
	c.lists, errs[4] = metadata.NewForConfig(config)
	c.reviews, errs[5] = client.NewClient(config, reviewQPS, reviewBurst, 0)
	if err := errors.Join(errs[:]...); err != nil {
		return clients{}, fmt.Errorf("making clients for the apiserver: %w", err)
	}
	return c, nil
}

type efsClient interface {
	table.API
	accesspoints.API
}

// lateVPC wraps the API if the VPC of the nodes was unknown when the loops were made. It requests the VPC before each
// listing, and once it is known leaves out mount targets of other VPCs, as loops do that know it from the start.
type lateVPC struct {
	efsClient
	finder *topology.Finder
}

// ListFileSystems implements table.API.
func (l lateVPC) ListFileSystems(ctx context.Context) (efs.Listing, error) {
	id := l.finder.LateVPC(ctx)
	listing, err := l.efsClient.ListFileSystems(ctx)
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
