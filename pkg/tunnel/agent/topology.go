package agent

import (
	"cmp"
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"gnuthought.com/efs-stunnel/pkg/awsplace"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/tunnel/topology"
)

// maxMetadataWait is between two questions to a metadata service that does not answer.
const maxMetadataWait = 5 * time.Minute

// findPlace asks the instance's metadata until it answers. The labels of the node serve as long.
func (a *Agent) findPlace(ctx context.Context) {
	policy := backoff.NewExponentialBackOff(backoff.WithMaxInterval(maxMetadataWait), backoff.WithMaxElapsedTime(0))
	first := true
	_ = backoff.Retry(func() error {
		found, err := a.options.Metadata(ctx)
		a.inbox.put(func(n *news) {
			n.asked = true
			if err == nil {
				n.metadata = found
			}
		})
		if err != nil && first {
			a.options.Log.Info("instance metadata does not tell where the node is; its labels are used", "err", err)
		}
		first = false
		return err
	}, backoff.WithContext(policy, ctx)) // it only fails when the context ends
}

// whereabouts is the best that is known: the instance's own word, the node's labels, or what
// was known in an earlier life.
func (a *Agent) whereabouts(n news) routing.Place {
	if n.metadata.Known() {
		return n.metadata
	}
	if n.node != nil {
		if labels := topology.FromLabels(n.node); labels.Known() {
			return labels
		}
	}
	return a.place
}

// region is "" while it is not known.
func (a *Agent) region() string { return cmp.Or(a.options.Region, a.place.Region) }

func (a *Agent) dnsSuffix() string {
	if region := a.region(); region != "" {
		return awsplace.DNSSuffix(region)
	}
	return ""
}
