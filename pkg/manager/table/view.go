package table

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/queue"
)

// viewInterval is the time between two comparisons of the view with a table that does not change. Agents that start
// while somebody has changed or deleted the view read the whole table.
const viewInterval = time.Minute

// syncView writes the view of the table as the apiserver has it, whoever wrote it and whether or not it can be read:
// that is the agents' to judge. Until the view follows a change, agents wait, and then read the table itself.
func (c *Controller) syncView(ctx context.Context, _ string) (again time.Duration, err error) {
	table := c.caches.TargetsConfigMap()
	if table == nil {
		return 0, nil // the view stays: it is no other table's
	}
	want, err := ports.NewView(table)
	if err != nil {
		return 0, queue.Terminal(err)
	}
	configMaps := c.client.CoreV1().ConfigMaps(c.options.Namespace)
	view, err := configMaps.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = configMaps.Create(ctx, want, metav1.CreateOptions{})
	case err != nil || equality.Semantic.DeepEqual(view.Data, want.Data) && equality.Semantic.DeepEqual(view.BinaryData, want.BinaryData):
	default:
		view.Data, view.BinaryData = want.Data, want.BinaryData
		_, err = configMaps.Update(ctx, view, metav1.UpdateOptions{})
	}
	if objects.IsRace(err) {
		return settleTime, nil
	}
	if err != nil {
		return 0, fmt.Errorf("writing ConfigMap %s: %w", wellknown.ViewConfigMap, err)
	}
	return viewInterval, nil
}
