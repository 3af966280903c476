// Package orchestrate brings a lab up and down and tells how it is: the order
// of things, while the other packages know the things themselves.
package orchestrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// Orchestrator works on one lab.
type Orchestrator struct {
	Lab   state.Lab
	Steps *step.Printer
}

// stopGrace is how long a part may take to end before it is killed. The
// apiserver would wait for its clients much longer.
const stopGrace = 3 * time.Second

// lock keeps two commands from changing one lab at once; the second waits.
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

// lockExisting locks a lab that is up and reads its settings. One that is not
// up is left without a trace.
func (o *Orchestrator) lockExisting() (s state.Settings, unlock func(), err error) {
	if _, err := o.Lab.Load(); err != nil {
		return state.Settings{}, nil, err
	}
	unlock, err = o.lock()
	if err != nil {
		return state.Settings{}, nil, err
	}
	if s, err = o.Lab.Load(); err != nil { // taken down while this waited
		unlock()
		return state.Settings{}, nil, err
	}
	return s, unlock, nil
}

// ensure makes sure that the spec's process runs: a live one that was started
// otherwise is replaced. open, if any, gives the files to hand over.
func (o *Orchestrator) ensure(ctx context.Context, spec proc.Spec, open func() ([]*os.File, error)) error {
	r, ok := o.Lab.Parts().Get(spec.Name)
	if ok && r.Alive() && r.Matches(spec) {
		return nil
	}
	if err := o.Lab.Parts().Stop(ctx, spec.Name, stopGrace); err != nil {
		return err
	}
	var files []*os.File
	if open != nil {
		var err error
		if files, err = open(); err != nil {
			return err
		}
	}
	_, err := o.Lab.Parts().Start(spec, files...)
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// unlessDead hands on what is missing, unless one of the parts that should
// bring it is dead: then there is no sense in waiting, and its log says why.
func (o *Orchestrator) unlessDead(missing error, parts ...string) error {
	for _, name := range parts {
		if r, ok := o.Lab.Parts().Get(name); !ok || !r.Alive() {
			return backoff.Permanent(fmt.Errorf("%s ended: %s", name, lastLine(o.Lab.LogFile(name))))
		}
	}
	return missing
}

func lastLine(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return "it left no log"
	}
	defer f.Close()
	const enough = 2048
	if info, err := f.Stat(); err == nil && info.Size() > enough {
		_, _ = f.Seek(-enough, io.SeekEnd)
	}
	data, _ := io.ReadAll(f)
	var notes step.Notes
	_, _ = notes.Write(data)
	return notes.Last() + " (log: " + file + ")"
}

const (
	// pollInterval is short beside everything that is waited for.
	pollInterval = 200 * time.Millisecond
	// partLimit is long for a part of the lab on a busy host; one that has died is not awaited.
	partLimit = 10 * time.Minute
)

// await polls until check succeeds, and notes what is missing meanwhile. It
// gives up at the limit, or at an error that check marks with
// backoff.Permanent.
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

// client talks to the lab's apiserver as its administrator.
func client(lab state.Lab) (*kubernetes.Clientset, error) {
	config, err := restConfig(lab)
	if err != nil {
		return nil, err
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the apiserver: %w", err)
	}
	return c, nil
}

func restConfig(lab state.Lab) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", lab.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	config.Timeout = 5 * time.Second
	return config, nil
}

// ownProgram copies the running program into the lab's folder, so that its
// processes do not depend on a checkout, and returns the copy and its digest.
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
