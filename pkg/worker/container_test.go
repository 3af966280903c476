package worker

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

const fileSystemID = "fs-34a3p3"

// container is a container with a file system that is a temporary directory.
type container struct {
	t              *testing.T
	directory      string
	operations     string
	terminationLog string
	mountErr       error           // of CheckMount
	hang           <-chan struct{} // how long the look takes; nil is no time
	progress       func(done int)  // called after each operation, unless nil
	now            time.Time
	stdout, stderr bytes.Buffer
}

func newContainer(t *testing.T, ops ...operations.Operation) *container {
	t.Helper()
	folder := t.TempDir()
	w := &container{
		t:              t,
		directory:      filepath.Join(folder, "efs"),
		operations:     filepath.Join(folder, "operations.json"),
		terminationLog: filepath.Join(folder, "termination-log"),
		now:            time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC),
	}
	if err := os.Mkdir(w.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	w.ask(ops...)
	return w
}

// ask writes the file that the downward API would.
func (w *container) ask(ops ...operations.Operation) {
	w.t.Helper()
	data, err := operations.Encode(ops)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(w.operations, data)
}

func (w *container) write(path string, data []byte) {
	w.t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// run runs a command as a Job does, with more arguments.
func (w *container) run(ctx context.Context, command string, more ...string) int {
	w.t.Helper()
	args := []string{command, "--file-system-id=" + fileSystemID, "--directory=" + w.directory, "--termination-log=" + w.terminationLog}
	if command == commandRun || command == commandClone {
		args = append(args, "--operations="+w.operations)
	}
	return w.runRaw(ctx, append(args, more...)...)
}

func (w *container) runRaw(ctx context.Context, args ...string) int {
	w.t.Helper()
	p := Program{
		Stdout: &w.stdout, Stderr: &w.stderr,
		Getenv: func(string) string { return "" },
		Now:    func() time.Time { return w.now },
		Progress: func(done int) {
			if w.progress != nil {
				w.progress(done)
			}
		},
		CheckMount: func(string) error {
			if w.hang != nil {
				<-w.hang
			}
			return w.mountErr
		},
	}
	return p.Run(ctx, args)
}

func (w *container) message() string {
	w.t.Helper()
	data, err := os.ReadFile(w.terminationLog)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

// report is what the manager would read.
func (w *container) report(ops int) operations.Report {
	w.t.Helper()
	report, err := operations.DecodeReport([]byte(w.message()), ops)
	if err != nil {
		w.t.Fatalf("%v in %s", err, w.message())
	}
	return report
}

func (w *container) taskReport() operations.TaskReport {
	w.t.Helper()
	report, err := operations.DecodeTaskReport([]byte(w.message()))
	if err != nil {
		w.t.Fatalf("%v in %s", err, w.message())
	}
	return report
}

func (w *container) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(w.directory, path))
	return err == nil
}

func setup(volume, path string) operations.Operation {
	return operations.Operation{
		Kind: operations.Setup, Owner: owner(volume), Path: path,
		Directory: operations.Directory{UID: os.Getuid(), GID: os.Getgid()},
	}
}

func cleanup(volume, path string) operations.Operation {
	return operations.Operation{Kind: operations.Cleanup, Owner: owner(volume), Path: path}
}

func owner(volume string) operations.Owner {
	return operations.Owner{Volume: volume, Cluster: "c1", Namespace: "team", Claim: "claim-" + volume, ClaimUID: "uid-" + volume}
}
