package efscli

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/output"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory/inventorytest"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
)

const shared = "fs-0123456789abcdef0"

// lab runs command lines against an admin server without any network.
type lab struct {
	socket    string
	inventory *inventory.Store
}

func newLab(t *testing.T) *lab {
	t.Helper()
	store := inventorytest.New(t, "127.0")
	targets := &terminator.Set{Log: slog.New(slog.DiscardHandler)}
	reconcile := func(ctx context.Context) error {
		var specs []terminator.Spec
		for _, mt := range store.Snapshot().MountTargets {
			// No listener of the tests may need a fixed port.
			specs = append(specs, terminator.Spec{ID: mt.ID, FileSystemID: mt.FileSystemID, Address: net.JoinHostPort(mt.Address, "0")})
		}
		return targets.Apply(ctx, specs)
	}
	if err := reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = targets.Apply(context.WithoutCancel(t.Context()), nil) })
	l := &lab{socket: filepath.Join(t.TempDir(), "s"), inventory: store}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", l.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: admin.NewHandler(admin.Options{
		Inventory: store, Faults: &efsapi.Faults{}, Counters: &efsapi.Counters{}, Targets: targets, Reconcile: reconcile,
		Ready:      func(context.Context) error { return nil },
		RemoveData: func(string) error { return nil },
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return l
}

func (l *lab) run(t *testing.T, line ...string) (string, error) {
	t.Helper()
	cmd := New(func() (string, error) { return l.socket, nil })
	var out strings.Builder
	cmd.SetArgs(line)
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func (l *lab) must(t *testing.T, line ...string) string {
	t.Helper()
	out, err := l.run(t, line...)
	if err != nil {
		t.Fatalf("%v: %v", line, err)
	}
	return strings.TrimSpace(out)
}

func TestResourcesAreCreatedChangedAndDeleted(t *testing.T) {
	l := newLab(t)
	fs := l.must(t, "create-file-system", "--fs-name", "new", "--one-zone", "us-east-1b", "--tag", "team=a")
	target, _, _ := strings.Cut(l.must(t, "create-mount-target", "--file-system", fs, "--zone", "us-east-1b"), " ")
	point := l.must(t, "create-access-point", "--file-system", fs, "--path", "/a", "--user", "1:2", "--owner", "3:4", "--permissions", "0700")
	l.must(t, "update-file-system", fs, "--state", "updating", "--replicating", "--tag", "team=", "--require-iam")
	l.must(t, "update-mount-target", target, "--state", "error", "--mode", "refuse", "--certificate", "expired")
	l.must(t, "update-access-point", point, "--state", "deleting")
	w := l.inventory.Snapshot()
	if got := w.FileSystems[fs]; got.State != inventory.Updating || !got.Replicating || !got.RequireIAM || got.Zone != "us-east-1b" || len(got.Tags) != 1 {
		t.Errorf("file system %+v", got)
	}
	if list := l.must(t, "list"); !strings.Contains(list, "required") {
		t.Errorf("list does not show that IAM is required:\n%s", list)
	}
	l.must(t, "update-file-system", fs, "--require-iam=false")
	if got := l.inventory.Snapshot().FileSystems[fs]; got.RequireIAM || !got.Replicating {
		t.Errorf("file system %+v", got)
	}
	if got := w.AccessPoints[point]; got.State != inventory.Deleting || got.PosixUser.GID != 2 || got.CreationInfo.OwnerUID != 3 {
		t.Errorf("access point %+v", got)
	}
	if got := w.MountTargets[target]; got.State != inventory.Errored {
		t.Errorf("mount target %+v", got)
	}
	status := l.must(t, "status")
	for _, text := range []string{"refuse", "expired", "127.0.2.202"} {
		if !strings.Contains(status, text) {
			t.Errorf("status lacks %s:\n%s", text, status)
		}
	}
	l.must(t, "delete-access-point", point)
	l.must(t, "delete-mount-target", target)
	l.must(t, "delete-file-system", fs)
	if got := l.inventory.Snapshot(); len(got.FileSystems) != 2 || len(got.MountTargets) != 4 || len(got.AccessPoints) != 0 {
		t.Errorf("left: %+v", got)
	}
}

func TestOutputIsATableOrJSON(t *testing.T) {
	l := newLab(t)
	if out := l.must(t, "list"); !strings.Contains(out, "FILE SYSTEM") || !strings.Contains(out, "127.0.1.200") {
		t.Errorf("got\n%s", out)
	}
	var w inventory.Snapshot
	if err := json.Unmarshal([]byte(l.must(t, "list", "-o", "json")), &w); err != nil || len(w.FileSystems) != 2 {
		t.Errorf("got %+v, %v", w, err)
	}
	var s admin.Status
	if err := json.Unmarshal([]byte(l.must(t, "status", "--output", "json")), &s); err != nil || len(s.MountTargets) != 4 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestStatusShowsRefusalsByCause(t *testing.T) {
	var out strings.Builder
	status := admin.Status{MountTargets: []terminator.Status{{
		ID: "fsmt-1", Refused: 3, LastRefusal: "iam-key: access key is unknown",
		Refusals: map[mountauth.Cause]int{mountauth.IAMKey: 2, mountauth.AccessPoint: 1},
	}}}
	if err := output.Format("table").Print(&out, status, func(row output.Row) { statusRows(status, row) }); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"3 iam-key: access key is unknown", "REFUSED FOR CONNECTIONS fsmt-1 access-point 1 fsmt-1 iam-key 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}

func TestFaultsAreSetAndCleared(t *testing.T) {
	l := newLab(t)
	l.must(t, "faults", "set", "throttle", "--next", "3", "--operation", "DescribeMountTargets")
	l.must(t, "faults", "set", "server-error", "--rate", "0.5")
	l.must(t, "faults", "set", "page-size", "--size", "1")
	status := l.must(t, "status")
	for _, text := range []string{"the next 3", "0.5 of all", "1 per page", "DescribeMountTargets"} {
		if !strings.Contains(status, text) {
			t.Errorf("status lacks %s:\n%s", text, status)
		}
	}
	l.must(t, "faults", "clear")
	if status := l.must(t, "status"); strings.Contains(status, "the next 3") {
		t.Errorf("after clear:\n%s", status)
	}
}

func TestInvalidInputIsRefusedWithWhatIsAllowed(t *testing.T) {
	l := newLab(t)
	tests := map[string]struct{ line, want string }{
		"output":            {"list -o yaml", "table, json"},
		"state":             {"update-file-system " + shared + " --state ill", "creating, available"},
		"nothing to change": {"update-file-system " + shared, "[state tag replicating require-iam]"},
		"no mount target":   {"update-mount-target fsmt-1 --mode ok", "mount target fsmt-1 does not run"},
		"mode":              {"update-mount-target fsmt-1 --mode odd", "ok, refuse, reset, drop, silent"},
		"certificate":       {"update-mount-target fsmt-1 --certificate odd", "wrong-name"},
		"delay":             {"update-mount-target fsmt-1 --delay soon", "soon"},
		"zone":              {"create-mount-target --file-system " + shared + " --zone mars", "us-east-1a, us-east-1b"},
		"address type":      {"create-mount-target --file-system " + shared + " --zone us-east-1a --ip-address-type ipv5", "want one of ipv4, ipv6, dual"},
		"no zone":           {"create-mount-target --file-system " + shared, `"zone" not set`},
		"user":              {"create-access-point --file-system " + shared + " --user me", "UID:GID"},
		"tag":               {"create-file-system --tag x", "key=value"},
		"fault":             {"faults set flood", "throttle, server-error"},
		"operation":         {"faults set throttle --operation List", "DescribeFileSystems, DescribeMountTargets"},
		"rate":              {"faults set throttle --rate 2", "at most 1"},
		"next":              {"faults set throttle --next 0", "at least 1"},
		"still has targets": {"delete-file-system " + shared, "mount targets"},
		"unknown command":   {"destroy", "destroy"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := l.run(t, strings.Fields(tt.line)...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to mention %s", err, tt.want)
			}
		})
	}
}

func TestErrorAsksWhetherTheLabIsUp(t *testing.T) {
	l := &lab{socket: filepath.Join(t.TempDir(), "none")}
	if _, err := l.run(t, "list"); err == nil || !strings.Contains(err.Error(), "is the lab up?") {
		t.Errorf("got %v", err)
	}
}
