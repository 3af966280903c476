package discovery

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-multierror"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/pairs"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// executor is the only writer.
type executor struct {
	client  kubernetes.Interface
	options Options
	tell    *teller
	metrics *metrics
}

// maxCorrections bounds one sync, so that a restored cluster with ten thousand volumes to
// correct does not keep a lost root volume waiting.
const maxCorrections = 200

// store writes the table where it changed, and returns the ConfigMap as it is then. The object
// was read before; whoever wrote since then wins, and the error is one of pairs.IsRace.
func (e executor) store(ctx context.Context, object *corev1.ConfigMap, p plan) (stored *corev1.ConfigMap, err error) {
	if !p.write {
		return object, nil
	}
	next := withTable(object, e.options.Namespace, p.table)
	configMaps := e.client.CoreV1().ConfigMaps(e.options.Namespace)
	if object == nil {
		stored, err = configMaps.Create(ctx, next, metav1.CreateOptions{})
	} else {
		stored, err = configMaps.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("writing ConfigMap %s: %w", wellknown.TargetsConfigMap, err)
	}
	e.options.Log.Info("table stored", "reason", fmt.Sprintf("%d targets", len(p.table.Targets)))
	return stored, nil
}

func newConfigMap(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: wellknown.TargetsConfigMap,
		Labels: map[string]string{
			mountjobs.LabelAppName:         mountjobs.AgentAppName,
			"app.kubernetes.io/managed-by": wellknown.ManagerDeployment,
		},
	}}
}

// apply heals root volumes and corrects ports. The failure of one leaves the others alone.
func (e executor) apply(ctx context.Context, p plan) (again time.Duration, err error) {
	var failures *multierror.Error
	collect := func(err error) {
		switch {
		case pairs.IsRace(err):
			again = settleTime
		case err != nil:
			failures = multierror.Append(failures, err)
		}
	}
	for _, w := range p.roots {
		collect(e.heal(ctx, w))
	}
	for i, w := range p.corrections {
		if i == maxCorrections {
			again = settleTime
			break
		}
		collect(e.correct(ctx, w))
	}
	return again, failures.ErrorOrNil()
}

// correct writes the port that a volume must have; mounts that exist keep the old one.
func (e executor) correct(ctx context.Context, w portWork) error {
	if err := kubeobjects.PatchVolume(ctx, e.client, w.is, w.want); err != nil {
		return fmt.Errorf("correcting the port of volume %s: %w", w.is.Name, err)
	}
	e.metrics.corrections.Inc()
	e.options.Log.Warn("port corrected", "volume", w.is.Name, "fileSystem", w.why.On.FileSystem, "port", w.why.To, "reason", w.why.Reason)
	e.tell.onVolume(w.is, wellknown.EventPortCorrected, correctionMessage(w.why))
	return nil
}

func correctionMessage(c ports.Correction) string {
	from := fmt.Sprintf("port %d", c.From)
	if c.From == 0 {
		from = "no port"
	}
	return fmt.Sprintf("changed from %s to %d: %s; pods that use the volume since before must be restarted", from, c.To, c.Reason)
}
