package orchestrate

import (
	"context"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// Components makes only the Kubernetes programs and etcd, and returns their
// folder. It needs Go and nothing else.
func (o *Orchestrator) Components(ctx context.Context) (dir string, err error) {
	maker, err := artifacts.NewMaker()
	if err != nil {
		return "", err
	}
	err = o.Steps.Do(ctx, "Kubernetes and etcd", func(ctx context.Context, notes *step.Notes) error {
		programs, made, err := maker.Components(ctx, notes)
		dir = programs.Dir
		notes.Result("%s, %s", programs.Version, origin(made))
		return err
	})
	return dir, err
}
