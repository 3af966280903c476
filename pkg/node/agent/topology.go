package agent

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

// maxMetadataWait is the longest time between two requests to a metadata service that does not answer.
const maxMetadataWait = 5 * time.Minute

// readMetadata requests the instance metadata until the service answers. The labels of the node are
// used meanwhile.
func (a *Agent) readMetadata(ctx context.Context) {
	policy := backoff.NewExponentialBackOff(backoff.WithMaxInterval(maxMetadataWait), backoff.WithMaxElapsedTime(0))
	first := true
	_ = backoff.Retry(func() error {
		found, err := a.options.Metadata(ctx)
		a.inbox.put(func(n *inputs) {
			n.metadataTried = true
			if err == nil {
				n.metadata = found
			}
		})
		if err != nil && first {
			a.options.Log.Info("instance metadata cannot be read; using the node's labels", "err", err)
		}
		first = false
		return err
	}, backoff.WithContext(policy, ctx)) // the error is the context's
}

// currentLocation returns the location from the instance metadata, else from the node's labels, else
// the one before, also of an earlier run.
func (a *Agent) currentLocation(n inputs) routing.Location {
	if n.metadata.Known() {
		return n.metadata
	}
	if n.node != nil {
		if labels := routing.Location(topology.FromLabels(n.node)); labels.Known() {
			return labels
		}
	}
	return a.location
}
