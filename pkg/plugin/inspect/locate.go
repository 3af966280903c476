package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Locate is Gather for the manager and the table only.
func Locate(ctx context.Context, client kubernetes.Interface, o Options) (*Snapshot, error) {
	g := gatherer{client: client, options: o, snapshot: &Snapshot{}}
	for _, step := range []func(context.Context) error{g.installation, g.programs, g.table} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	g.snapshot.Now = o.Now()
	return g.snapshot, nil
}

// FileSystems are the ids in the table. The error says why it cannot be read.
func (s *Snapshot) FileSystems() ([]string, error) {
	switch {
	case s.lacks("configmaps"):
		return nil, fmt.Errorf("you have no right to read ConfigMap %s in namespace %s", wellknown.TargetsConfigMap, s.Namespace)
	case s.Table == nil:
		return nil, fmt.Errorf("there is no ConfigMap %s in namespace %s: name the installation's with --system-namespace", wellknown.TargetsConfigMap, s.Namespace)
	}
	table, _, err := ports.DecodeLenient([]byte(s.Table.Data[wellknown.TargetsKey]))
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", wellknown.TargetsConfigMap, err)
	}
	return slices.Sorted(maps.Keys(table.Targets)), nil
}

// JobSettings are those that the manager has for its Jobs. An image that is not "" replaces the manager's.
func (s *Snapshot) JobSettings(image string) (mountjobs.Settings, error) {
	settings := mountjobs.Settings{Namespace: s.Namespace, Image: image}
	if image == "" {
		settings.Image = setting(s.Manager, "--worker-image", "WORKER_IMAGE")
	}
	if settings.Image == "" {
		return settings, errors.New("the image of mount Jobs is not in the manager's Deployment, or you have no right to read it: name it with --worker-image")
	}
	settings.ImagePullPolicy = corev1.PullPolicy(setting(s.Manager, "--worker-image-pull-policy", ""))
	if names := setting(s.Manager, "--worker-image-pull-secrets", ""); names != "" {
		settings.ImagePullSecrets = strings.Split(names, ",")
	}
	var errs [2]error
	settings.Tolerations, errs[0] = mountjobs.ParseTolerations(setting(s.Manager, "--worker-tolerations", ""))
	settings.NodeSelector, errs[1] = mountjobs.ParseNodeSelector(setting(s.Manager, "--worker-node-selector", ""))
	if err := errors.Join(errs[:]...); err != nil {
		return settings, fmt.Errorf("reading the settings of the manager's Deployment: %w", err)
	}
	if timeout, err := time.ParseDuration(setting(s.Manager, "--mount-job-timeout", "")); err == nil {
		settings.Timeout = timeout
	}
	return settings, nil
}

// Aliases are the ids that a file system may carry as a copy of another.
func (s *Snapshot) Aliases(fileSystem string) []string {
	var old []string
	for item := range strings.SplitSeq(setting(s.Manager, "--file-system-aliases", ""), ",") {
		if fresh, id, _ := strings.Cut(strings.TrimSpace(item), "="); fresh == fileSystem {
			old = append(old, id)
		}
	}
	return old
}
