package orchestrate

import (
	"context"
	"fmt"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// Stunnel makes a program that runs Debian's stunnel with Debian's libraries, whatever this
// machine has, and returns its path.
func (o *Orchestrator) Stunnel(ctx context.Context) (program string, err error) {
	if err := host.CheckRoot(); err != nil {
		return "", err
	}
	maker, err := artifacts.NewMaker()
	if err != nil {
		return "", err
	}
	err = o.Steps.Do(ctx, "stunnel", func(ctx context.Context, notes *step.Notes) error {
		if _, err := host.InstallPackages(ctx, notes); err != nil {
			return fmt.Errorf("installing what unpacks packages: %w", err)
		}
		program, err = maker.Stunnel(ctx, notes)
		return err
	})
	return program, err
}
