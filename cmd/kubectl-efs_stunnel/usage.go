package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// surveyPoll is the time between two reads of the progress of surveys.
const surveyPoll = 2 * time.Second

func (p *plugin) usage() *cobra.Command {
	all, now := false, false
	command := &cobra.Command{
		Use:   "usage",
		Short: "Show what claims hold, as it was last counted",
		Long: "Show what the directories of claims hold, as the last survey has counted it; the largest first.\n" +
			"With --now, have the manager count first, and wait for that.",
		Example: "  kubectl efs-stunnel usage\n  kubectl efs-stunnel usage -A -o json\n  kubectl efs-stunnel usage --now",
		RunE: func(command *cobra.Command, _ []string) error {
			namespace := p.namespace()
			if all {
				namespace = ""
			}
			snapshot, err := p.gather(command.Context(), false)
			if err == nil && now {
				snapshot, err = p.count(command.Context(), snapshot, namespace)
			}
			if err != nil {
				return err
			}
			usage := inspect.NewUsage(snapshot, namespace)
			return show(p, usage, usage.Level(), snapshot.Now)
		},
	}
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "the claims of all namespaces")
	command.Flags().BoolVar(&now, "now", false, "count now, and wait for the numbers")
	return command
}

// count requests surveys of the file systems with the claims of a namespace, and returns when all are finished.
func (p *plugin) count(ctx context.Context, before *inspect.Snapshot, namespace string) (after *inspect.Snapshot, err error) {
	ids, err := inspect.FileSystemsOf(before, inspect.NewUsage(before, namespace))
	if err != nil {
		return nil, fmt.Errorf("counting with --now: %w", err)
	}
	requested := before.Now.UTC().Truncate(time.Second)
	c, err := p.connect(p.flags)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if err := request(ctx, c, before.Namespace, id, requested); err != nil {
			return nil, err
		}
	}
	if len(ids) == 0 {
		return before, nil
	}
	said := map[string]string{}
	err = wait.PollUntilContextCancel(ctx, surveyPoll, true, func(ctx context.Context) (done bool, err error) {
		if after, err = p.gather(ctx, false); err != nil {
			return false, err
		}
		done = true
		for _, id := range ids {
			survey := inspect.SurveyOf(after, id, requested)
			if survey.Stuck {
				return false, fmt.Errorf("counting the volumes of %s: %s", id, survey.State)
			}
			done = done && survey.Finished
			if !survey.Finished && after.Now.Sub(before.Now) >= quiet && said[id] != survey.State {
				said[id] = survey.State
				fmt.Fprintf(p.streams.ErrOut, "%s: %s\n", id, printing.Line(survey.State))
			}
		}
		return done, nil
	})
	return after, err
}

// request annotates the root claim, which the manager watches.
func request(ctx context.Context, c connection, namespace, id string, at time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{wellknown.AnnotationSurveyRequested: at.Format(time.RFC3339)},
	}})
	if err != nil {
		return err
	}
	name := volumes.RootName(id)
	_, err = c.client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("--now needs the right to patch persistentvolumeclaims in namespace %s: %w", namespace, err)
	}
	if err != nil {
		return fmt.Errorf("requesting a survey of %s: %w", id, err)
	}
	return nil
}
