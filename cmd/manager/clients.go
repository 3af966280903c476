package main

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"gnuthought.com/efs-stunnel/pkg/apiclock"
	"gnuthought.com/efs-stunnel/pkg/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/forbidden"
)

// Limits of the clients beside the loops': neither events nor the Lease may wait for the loops'
// requests, or the other way round.
const (
	eventQPS, eventBurst = 50, 100
	eventTimeout         = 10 * time.Second
	leaseQPS, leaseBurst = 10, 20
)

// clients are the ways to the apiserver.
type clients struct {
	work   kubernetes.Interface // of caches and loops
	shared dynamic.Interface    // of the same, for our own objects
	lists  metadata.Interface   // of the same, for the names and versions of all objects
	events kubernetes.Interface
	lease  kubernetes.Interface
}

// restConfig says how to reach the apiserver; it does not ask it anything.
func restConfig(kubeconfig, master string) (*rest.Config, error) {
	if kubeconfig == "" && master == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("looking for the apiserver from inside a cluster (outside, set --kubeconfig): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags(master, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading --kubeconfig %q: %w", kubeconfig, err)
	}
	return config, nil
}

func newClients(config *rest.Config, o options, tracker *forbidden.Tracker, clock *apiclock.Clock) (clients, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "efs-stunnel-manager/" + buildinfo.Read().Version
	// Protobuf takes a third of JSON's time and memory, of which there are ten thousand volumes.
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.Wrap(tracker.Wrap)
	config.Wrap(clock.Wrap)
	var c clients
	var err error
	for _, client := range []struct {
		to      *kubernetes.Interface
		qps     float32
		burst   int
		timeout time.Duration // 0 for none: watches last
	}{
		{&c.work, o.qps, o.burst, 0},
		{&c.events, eventQPS, eventBurst, eventTimeout},
		// As in Kubernetes' own programs, so that one request that hangs does not cost the Lease.
		{&c.lease, leaseQPS, leaseBurst, o.lease.renewDeadline / 2},
	} {
		own := rest.CopyConfig(config)
		own.QPS, own.Burst, own.Timeout = client.qps, client.burst, client.timeout
		if *client.to, err = kubernetes.NewForConfig(own); err != nil {
			return clients{}, fmt.Errorf("making a client for the apiserver: %w", err)
		}
	}
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = o.qps, o.burst
	if c.shared, err = dynamic.NewForConfig(own); err != nil {
		return clients{}, fmt.Errorf("making a client for SharedVolumes: %w", err)
	}
	if c.lists, err = metadata.NewForConfig(own); err != nil {
		return clients{}, fmt.Errorf("making a client for metadata: %w", err)
	}
	return c, nil
}
