package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/collect"
	"gnuthought.com/efs-stunnel/pkg/plugin/dashboard"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// surveyPoll is the wait between two looks at a survey, which become rare: each reads all claims and volumes.
var surveyPoll = wait.Backoff{Duration: 2 * time.Second, Factor: 1.3, Steps: 11, Cap: 30 * time.Second}

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
	err = surveyPoll.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (done bool, err error) {
		if after, err = p.gather(ctx, false); err != nil {
			return false, err
		}
		done = true
		for _, id := range ids {
			state, stuck := inspect.SurveyOf(after, id, requested)
			if stuck {
				return false, fmt.Errorf("counting the volumes of %s: %s", id, state)
			}
			done = done && state == ""
			if state != "" && after.Now.Sub(before.Now) >= quiet && said[id] != state {
				said[id] = state
				p.say(id, state)
			}
		}
		return done, nil
	})
	return after, err
}

// request annotates the root claim, which the manager watches.
func request(ctx context.Context, c connection, namespace, id string, at time.Time) error {
	name, key := volumes.RootName(id), wellknown.AnnotationSurveyRequested
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, at.Format(time.RFC3339))
	_, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("--now needs the right to patch persistentvolumeclaims in namespace %s: %w", namespace, err)
	}
	if err != nil {
		return fmt.Errorf("requesting a survey of %s: %w", id, err)
	}
	return nil
}

func (p *plugin) collect() *cobra.Command {
	var name string
	var accounts bool
	command := &cobra.Command{
		Use:   "collect",
		Short: "Write what an issue needs to a file, without secrets",
		Long: "Write objects, events and logs of the installation to a compressed tar, for an issue.\n" +
			"Secrets are not read, and what looks like a credential is replaced. Read the files before you publish them.\n\n" +
			"Exit code 0: everything was collected. 2: a right is missing, which the file's README.txt names, or there is no file.",
		Example: "  kubectl efs-stunnel collect\n  kubectl efs-stunnel collect -o issue.tar.gz --redact-account",
		RunE: func(command *cobra.Command, _ []string) error {
			return p.runCollect(command.Context(), name, accounts)
		},
	}
	command.Flags().StringVarP(&name, "output", "o", "", "`file` to write, which must not exist (default: a name with the time, in this directory)")
	command.Flags().BoolVar(&accounts, "redact-account", false, "replace the ids of AWS accounts, too")
	return command
}

func (p *plugin) runCollect(ctx context.Context, name string, accounts bool) error {
	if _, err := os.Lstat(name); name != "" && err == nil {
		return fmt.Errorf("%s exists: want the name of a new file", name)
	}
	c, progress, err := p.begin()
	if err != nil {
		return err
	}
	defer progress.stop()
	snapshot, err := p.gatherFrom(ctx, c, false)
	if err != nil {
		return err
	}
	archive, err := collect.Collect(ctx, c.client, collect.Options{Snapshot: snapshot, RedactAccounts: accounts, Progress: progress.step})
	if err != nil {
		return err
	}
	name = cmp.Or(name, archive.Name())
	progress.step("writing " + name)
	if err := writeNew(name, archive); err != nil {
		return err
	}
	progress.stop()
	fmt.Fprintf(p.streams.Out, "%s has:\n  %s\n", name, strings.Join(archive.Files(), "\n  "))
	if len(archive.Unread) > 0 {
		fmt.Fprintf(p.streams.ErrOut, "You have no right to:\n  %s\n", strings.Join(archive.Unread, "\n  "))
		return errUnknown
	}
	return nil
}

// writeNew never overwrites a file, and leaves none that is incomplete.
func writeNew(name string, archive *collect.Archive) error {
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: want the name of a new file", name)
	}
	if err != nil {
		return err
	}
	err = errors.Join(archive.Write(out), out.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", name, err), os.Remove(name))
	}
	return nil
}

func (p *plugin) dashboard() *cobra.Command {
	var port int
	command := &cobra.Command{
		Use:   "dashboard",
		Short: "Show the state of the installation in a browser",
		Long: "Serve a page with the state of the installation on 127.0.0.1, until Ctrl-C. It is read-only and refreshes itself.\n" +
			"Its address is printed, and has a part that cannot be guessed: whoever has it sees what you may read.",
		Example: "  kubectl efs-stunnel dashboard\n  kubectl efs-stunnel dashboard --port 8080",
		RunE: func(command *cobra.Command, _ []string) error {
			if port < 0 || port > wellknown.MaxPort {
				return fmt.Errorf("--port %d: want a port up to %d, or 0 for any", port, wellknown.MaxPort)
			}
			return p.runDashboard(command.Context(), port)
		},
	}
	command.Flags().IntVar(&port, "port", 0, "local `port` of the page; 0 is any that is free")
	return command
}

func (p *plugin) runDashboard(ctx context.Context, port int) error {
	c, err := p.connect(p.flags)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	handler := dashboard.New(listener.Addr().String(), func(ctx context.Context) (*inspect.Snapshot, error) {
		return p.gatherFrom(ctx, c, false)
	})
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	fmt.Fprintf(p.streams.Out, "%s\nCtrl-C ends it.\n", handler.URL())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
