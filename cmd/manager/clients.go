package main

import (
	"errors"
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/clock"
)

// Limits of the clients for events, Lease and workers' tokens, which must not wait for requests of the loops,
// nor delay them.
const (
	eventQPS, eventBurst   = 50, 100 // of warnings, and as many of other events
	leaseQPS, leaseBurst   = 10, 20
	reviewQPS, reviewBurst = 10, 50
)

// clients are the clients for the apiserver.
type clients struct {
	work     kubernetes.Interface // of caches and loops
	jobs     kubernetes.Interface // of the loop of mount Jobs, with a limit of its own
	shared   dynamic.Interface    // of the same, for SharedVolumes
	lists    metadata.Interface   // of the same, for the names and versions of all objects
	warnings kubernetes.Interface // events of this type
	events   kubernetes.Interface // of all others
	lease    kubernetes.Interface

	reviews authenticationv1.TokenReviewInterface
}

func newClients(config *rest.Config, o options, base *client.Program, apiClock *clock.Clock) (clients, error) {
	var c clients
	config = base.Configure(config, "efs-stunnel-manager")
	config.Wrap(apiClock.Wrap)
	config.QPS, config.Burst = o.qps, o.burst
	var errs [8]error
	c.work, errs[0] = client.NewClient(config, o.qps, o.burst, 0)
	// Everything waits for a Job. Its requests must not wait for those of the volumes before.
	c.jobs, errs[6] = client.NewClient(config, o.qps, o.burst, 0)
	c.warnings, errs[7] = client.NewClient(config, eventQPS, eventBurst, client.EventTimeout)
	c.events, errs[1] = client.NewClient(config, eventQPS, eventBurst, client.EventTimeout)
	// As in Kubernetes' own programs, so that one request that hangs does not cost the Lease.
	c.lease, errs[2] = client.NewClient(config, leaseQPS, leaseBurst, o.lease.RenewDeadline/2)
	c.shared, errs[3] = dynamic.NewForConfig(config)
	c.lists, errs[4] = metadata.NewForConfig(config)
	reviews, err := client.NewClient(config, reviewQPS, reviewBurst, 0)
	if errs[5] = err; err == nil {
		c.reviews = reviews.AuthenticationV1().TokenReviews()
	}
	if err := errors.Join(errs[:]...); err != nil {
		return clients{}, fmt.Errorf("making clients for the apiserver: %w", err)
	}
	return c, nil
}
