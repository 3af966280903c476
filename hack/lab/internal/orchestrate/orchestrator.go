// Package orchestrate starts, changes, stops and shows a lab. It calls the packages that implement the
// lab's parts in the right order.
package orchestrate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// Orchestrator starts, changes and stops one lab.
type Orchestrator struct {
	Lab   state.Lab
	Steps *step.Printer
}

// stopGrace is the time in which a part may end before it is killed. The apiserver would wait for its clients much
// longer.
const stopGrace = 3 * time.Second

type titledStep struct {
	title string
	do    func(context.Context, *step.Notes) error
}

// doAll runs steps one after another, until one fails.
func (o *Orchestrator) doAll(ctx context.Context, steps []titledStep) error {
	for _, s := range steps {
		if err := o.Steps.Do(ctx, s.title, s.do); err != nil {
			return err
		}
	}
	return nil
}

// lock makes a second command on the same lab wait.
func (o *Orchestrator) lock() (unlock func(), err error) {
	if err := os.MkdirAll(o.Lab.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the lab's folder: %w", err)
	}
	// Beside the folder, not in it: `down` removes the folder.
	f, err := os.OpenFile(o.Lab.Dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking lab %s: %w", o.Lab.Name, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		o.Steps.Printf("          waiting for another command on lab %s to end", o.Lab.Name)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking lab %s: %w", o.Lab.Name, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// lockExisting locks a lab that is up and reads its settings. For a lab that is not up it makes no files.
func (o *Orchestrator) lockExisting() (s state.Settings, unlock func(), err error) {
	if _, err := o.Lab.Load(); err != nil {
		return state.Settings{}, nil, err
	}
	unlock, err = o.lock()
	if err != nil {
		return state.Settings{}, nil, err
	}
	if s, err = o.Lab.Load(); err != nil { // taken down while this command waited
		unlock()
		return state.Settings{}, nil, err
	}
	return s, unlock, nil
}

// runs reports whether the spec's process runs.
func (o *Orchestrator) runs(spec proc.Spec) bool {
	r, ok := o.Lab.Parts().Get(spec.Name)
	return ok && r.Alive() && r.Matches(spec)
}

// ensure makes sure that the spec's process runs. A process that runs with another spec is replaced.
func (o *Orchestrator) ensure(ctx context.Context, spec proc.Spec) error {
	if o.runs(spec) {
		return nil
	}
	if err := o.Lab.Parts().Stop(ctx, spec.Name, stopGrace); err != nil {
		return err
	}
	_, err := o.Lab.Parts().Start(spec)
	return err
}

// orEnded returns the error of a wait, or a permanent error with the last line of its log if a part
// that is waited for has ended.
func (o *Orchestrator) orEnded(err error, parts ...string) error {
	for _, name := range parts {
		if r, ok := o.Lab.Parts().Get(name); !ok || !r.Alive() {
			file := o.Lab.LogFile(name)
			return backoff.Permanent(fmt.Errorf("%s ended: %s (log: %s)", name, cmp.Or(strings.Join(readTail(name, file, 1).lines, ""), "it has logged nothing"), file))
		}
	}
	return err
}

const (
	// pollInterval is short compared to all waits.
	pollInterval = 200 * time.Millisecond
	// partLimit is long for a part of the lab on a busy host. A wait for a part that ended is shorter.
	partLimit = 10 * time.Minute
)

// await polls until check succeeds, and writes its errors to notes. It gives up at the limit, or at an
// error that check marks with backoff.Permanent.
func await(ctx context.Context, notes io.Writer, limit time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var missing error
	err := backoff.RetryNotify(
		func() error { return check(ctx) },
		backoff.WithContext(backoff.NewConstantBackOff(pollInterval), ctx),
		func(err error, _ time.Duration) {
			missing = err
			fmt.Fprintln(notes, err)
		},
	)
	if errors.Is(err, context.DeadlineExceeded) && missing != nil {
		return fmt.Errorf("waiting for %s: gave up after %s: %w", what, limit, missing)
	}
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// client returns an administrator's client of the lab's apiserver.
func client(lab state.Lab) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", lab.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	config.Timeout = 5 * time.Second
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the apiserver: %w", err)
	}
	return c, nil
}

// ownProgram copies the running program into the lab's folder, so that the lab's processes do not depend
// on the checkout, and returns the copy's path and digest.
func (o *Orchestrator) ownProgram() (path, digest string, err error) {
	source, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", "", fmt.Errorf("copying the lab program: %w", err)
	}
	defer source.Close()
	path = o.Lab.Path("lab")
	tmp, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return "", "", fmt.Errorf("copying the lab program: %w", err)
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(tmp, hash), source)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return "", "", fmt.Errorf("copying the lab program: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return "", "", fmt.Errorf("copying the lab program: %w", err)
	}
	return path, hex.EncodeToString(hash.Sum(nil))[:16], nil
}
