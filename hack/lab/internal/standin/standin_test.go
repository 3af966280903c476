package standin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/efs"
	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// fakeServers are in place of NFS servers. Each sends its export's name and user as a greeting, and then
// what it receives.
type fakeServers struct {
	mu        sync.Mutex
	listeners map[string]net.Listener // guarded by mu
}

func (f *fakeServers) Apply(ctx context.Context, exports []ganesha.Export) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := map[string]bool{}
	for _, e := range exports {
		wanted[e.Name] = true
		if f.listeners[e.Name] != nil {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		if f.listeners == nil {
			f.listeners = map[string]net.Listener{}
		}
		f.listeners[e.Name] = l
		go greet(l, e)
	}
	for name, l := range f.listeners {
		if !wanted[name] {
			_ = l.Close()
			delete(f.listeners, name)
		}
	}
	return nil
}

func greet(l net.Listener, e ganesha.Export) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		user := "all users"
		if e.User != nil {
			user = fmt.Sprintf("%d:%d", e.User.UID, e.User.GID)
		}
		go func() {
			defer conn.Close()
			_, _ = fmt.Fprintf(conn, "%s %s %s\n", e.Name, filepath.Base(e.Dir), user)
			_, _ = io.Copy(conn, conn)
		}()
	}
}

func (f *fakeServers) Address(name string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.listeners[name]
	if !ok {
		return "", false
	}
	return l.Addr().String(), true
}

func (f *fakeServers) Ready(context.Context) error { return nil }

func (l *lab) startWithFakeServers(t *testing.T) (stop func()) {
	t.Helper()
	return l.start(t, func(ctx context.Context, log *slog.Logger) error {
		d, err := newDaemon(l.Lab, &fakeServers{}, log)
		if err != nil {
			return err
		}
		return d.run(ctx)
	})
}

func (l *lab) greeting(t *testing.T, address, accessPoint, fileSystem string) string {
	t.Helper()
	line, err := bufio.NewReader(l.dial(t, address, accessPoint, fileSystem)).ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimSpace(line)
}

func TestMountTargetsForwardToTheirFileSystems(t *testing.T) {
	l := newLab(t)
	l.startWithFakeServers(t)
	point, err := l.client.CreateAccessPoint(t.Context(), inventory.NewAccessPoint{
		FileSystemID: shared, Path: "/teams/one", PosixUser: &inventory.PosixUser{UID: 1000, GID: 2000},
		CreationInfo: &inventory.CreationInfo{OwnerUID: 1000, OwnerGID: 2000, Permissions: "2770"},
	})
	if err != nil {
		t.Fatal(err)
	}
	missing, err := l.client.CreateAccessPoint(t.Context(), inventory.NewAccessPoint{FileSystemID: shared, Path: "/none"})
	if err != nil {
		t.Fatal(err)
	}
	idle, err := l.client.CreateAccessPoint(t.Context(), inventory.NewAccessPoint{FileSystemID: shared, State: inventory.Creating})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ address, accessPoint, fileSystem, want string }{
		"shared, zone a":  {"10.90.1.200", "", "", shared + " " + shared + " all users"},
		"shared, zone b":  {"10.90.2.200", "", shared, shared + " " + shared + " all users"},
		"archive, zone a": {"10.90.1.201", "", archive, archive + " " + archive + " all users"},
		"archive, zone b": {"10.90.2.201", "", "", archive + " " + archive + " all users"},
		"access point":    {"10.90.1.200", point.ID, shared, point.ID + " one 1000:2000"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := l.greeting(t, tt.address, tt.accessPoint, tt.fileSystem); got != tt.want {
				t.Errorf("greeted by %q, want %q", got, tt.want)
			}
		})
	}
	refused := map[string]struct {
		address, accessPoint, fileSystem string
		cause                            mountauth.Cause
		reason                           string
	}{
		"other file system":        {"10.90.1.201", "", shared, mountauth.FileSystem, `is for file system "` + shared},
		"foreign access point":     {"10.90.1.201", point.ID, archive, mountauth.AccessPoint, "belongs to file system " + shared},
		"unknown access point":     {"10.90.1.200", "fsap-1", shared, mountauth.AccessPoint, "does not exist"},
		"access point in creation": {"10.90.1.200", idle.ID, shared, mountauth.AccessPoint, "is in state creating"},
		"access point, no root":    {"10.90.1.200", missing.ID, shared, mountauth.AccessPoint, "root directory /none"},
	}
	for name, tt := range refused {
		t.Run(name, func(t *testing.T) {
			client := mountauthtest.Client{FileSystemID: tt.fileSystem, AccessPointID: tt.accessPoint}
			l.wantRefusal(t, tt.address, client, tt.cause, tt.reason)
		})
	}
	info, err := os.Stat(l.Path("efs", "data", shared, "teams", "one"))
	if err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o770 {
		t.Errorf("root directory of the access point: %v, %v", info.Mode(), err)
	}
}

// wantRefusal calls a server as a client that is refused, and checks the reason.
func (l *lab) wantRefusal(t *testing.T, address string, client mountauthtest.Client, cause mountauth.Cause, reason string) {
	t.Helper()
	before := l.target(t, address)
	l.wantDenial(t, l.dialAs(t, address, client))
	after := l.target(t, address)
	if after.Refusals[cause] != before.Refusals[cause]+1 || !strings.Contains(after.LastRefusal, reason) {
		t.Errorf("refusals %v after %v, the last %q; want one more for %s because %q", after.Refusals, before.Refusals, after.LastRefusal, cause, reason)
	}
}

func (l *lab) wantDenial(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := ganesha.Ping(t.Context(), conn); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("call to NULL: %v, want it denied", err)
	}
}

func TestFileSystemCanRequireIAM(t *testing.T) {
	l := newLab(t)
	l.startWithFakeServers(t)
	point, err := l.client.CreateAccessPoint(t.Context(), inventory.NewAccessPoint{FileSystemID: shared})
	if err != nil {
		t.Fatal(err)
	}
	const address = "10.90.1.200"
	// A handshake ends for the client before the mount target decides: the greeting comes after that.
	conn := l.dial(t, address, "", "")
	live := bufio.NewReader(conn)
	if line, err := live.ReadString('\n'); err != nil || !strings.HasPrefix(line, shared) {
		t.Fatalf("greeted by %q, %v", line, err)
	}
	if err := l.client.UpdateFileSystem(t.Context(), shared, inventory.FileSystemChange{RequireIAM: new(true)}); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(conn, "more"); err != nil {
		t.Error(err)
	}
	if line, err := live.ReadString('\n'); err != nil || line != "more\n" {
		t.Errorf("open connection: %q, %v; want it to continue", line, err)
	}
	unsigned := mountauthtest.Client{FileSystemID: shared}
	l.wantRefusal(t, address, unsigned, mountauth.IAMMissing, "requires an IAM signature")
	l.wantRefusal(t, address, mountauthtest.Client{FileSystemID: shared, AccessPointID: point.ID}, mountauth.IAMMissing, "requires an IAM signature")
	l.wantDenial(t, l.dialWith(t, address))
	wrong := mountauthtest.Client{FileSystemID: shared, IAM: l.signed()}
	wrong.IAM.SecretAccessKey = "guessed"
	l.wantRefusal(t, address, wrong, mountauth.IAMSignature, accessKeyID)
	for want, client := range map[string]mountauthtest.Client{
		shared:   {FileSystemID: shared, IAM: l.signed()},
		point.ID: {FileSystemID: shared, AccessPointID: point.ID, IAM: l.signed()},
	} {
		if line, err := bufio.NewReader(l.dialAs(t, address, client)).ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
			t.Errorf("signed: greeted by %q, %v; want %s", line, err, want)
		}
	}
	if got := l.greeting(t, "10.90.1.201", "", archive); !strings.HasPrefix(got, archive) {
		t.Errorf("greeted by %q: the other file system requires nothing", got)
	}
	if err := l.client.UpdateFileSystem(t.Context(), shared, inventory.FileSystemChange{RequireIAM: new(false)}); err != nil {
		t.Fatal(err)
	}
	if got := l.greeting(t, address, "", shared); !strings.HasPrefix(got, shared) {
		t.Errorf("greeted by %q after the requirement ended", got)
	}
}

func (l *lab) target(t *testing.T, address string) terminator.Status {
	t.Helper()
	status, err := l.client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range status.MountTargets {
		if target.Address == net.JoinHostPort(address, nfsPort) {
			return target
		}
	}
	t.Fatalf("no mount target at %s", address)
	return terminator.Status{}
}

func TestMountTargetServesAtAddressesOfBothFamilies(t *testing.T) {
	l := newLab(t)
	l.startWithFakeServers(t)
	fs, err := l.client.CreateFileSystem(t.Context(), inventory.NewFileSystem{Name: "both"})
	if err != nil {
		t.Fatal(err)
	}
	var served []string
	for zone, kind := range map[string]inventory.AddressType{"us-east-1a": inventory.IPv6, "us-east-1b": inventory.DualStack} {
		target, err := l.client.CreateMountTarget(t.Context(), inventory.NewMountTarget{FileSystemID: fs.ID, Zone: zone, AddressType: kind})
		if err != nil {
			t.Fatal(err)
		}
		served = append(served, target.Addresses()...)
	}
	for _, address := range served {
		if got := l.greeting(t, address, "", fs.ID); !strings.HasPrefix(got, fs.ID) {
			t.Errorf("greeted by %q at %s", got, address)
		}
	}
	if err := l.client.DeleteFileSystem(t.Context(), fs.ID, true); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "ip", "address", "show", "dev", "lab0").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range served {
		if strings.Contains(string(out), address+"/") {
			t.Errorf("address %s of a deleted mount target is still there:\n%s", address, out)
		}
	}
}

func TestInventoryChangesAtRunTimeAndSurvivesARestart(t *testing.T) {
	l := newLab(t)
	stop := l.startWithFakeServers(t)
	ctx := t.Context()
	fs, err := l.client.CreateFileSystem(ctx, inventory.NewFileSystem{Name: "one", Zone: "us-east-1b"})
	if err != nil {
		t.Fatal(err)
	}
	target, err := l.client.CreateMountTarget(ctx, inventory.NewMountTarget{FileSystemID: fs.ID, Zone: "us-east-1b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.client.PutNode(ctx, inventory.Node{Name: "node-1", Address: "10.90.1.11", MAC: "52:54:00:00:00:01", Zone: "us-east-1a"}); err != nil {
		t.Fatal(err)
	}
	if err := l.client.UpdateMountTarget(ctx, target.ID, admin.MountTargetChange{State: "error", Mode: terminator.Refuse}); err != nil {
		t.Fatal(err)
	}
	before, err := l.client.Inventory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	l.startWithFakeServers(t)
	after, err := l.client.Inventory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("inventory after a restart (-before +after):\n%s", diff)
	}
	if got := l.greeting(t, target.Address, "", fs.ID); !strings.HasPrefix(got, fs.ID) {
		t.Errorf("greeted by %q: a mode must end with the process", got)
	}
	answer, err := l.efs().DescribeMountTargets(ctx, &efs.DescribeMountTargetsInput{FileSystemId: &fs.ID})
	if err != nil || len(answer.MountTargets) != 1 || answer.MountTargets[0].LifeCycleState != "error" {
		t.Errorf("API after a restart: %v, %v", answer, err)
	}
	if err := l.client.DeleteFileSystem(ctx, fs.ID, true); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(ctx, "ip", "address", "show", "dev", "lab0").Output(); err != nil || strings.Contains(string(out), target.Address+"/") {
		t.Errorf("address of a deleted mount target is still there: %v\n%s", err, out)
	}
	if _, err := os.Stat(l.Path("efs", "data", fs.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files of a deleted file system: %v", err)
	}
}

func TestFaultsAreSetAndClearedAtRunTime(t *testing.T) {
	l := newLab(t)
	l.startWithFakeServers(t)
	ctx := t.Context()
	if err := l.client.SetFault(ctx, efsapi.Fault{Kind: efsapi.AccessDenied, Operation: efsapi.DescribeFileSystems}); err != nil {
		t.Fatal(err)
	}
	id := l.target(t, "10.90.1.200").ID
	delay, plain := 5*time.Millisecond, true
	if err := l.client.UpdateMountTarget(ctx, id, admin.MountTargetChange{Mode: terminator.Refuse, Certificate: terminator.ExpiredCertificate, Delay: &delay, Plain: &plain}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.efs().DescribeFileSystems(ctx, nil); err == nil || !strings.Contains(err.Error(), "AccessDeniedException") {
		t.Errorf("got %v", err)
	}
	if target := l.target(t, "10.90.1.200"); target.Mode != terminator.Refuse || target.Certificate != terminator.ExpiredCertificate || target.Delay != delay || !target.Plain {
		t.Errorf("got %+v", target)
	}
	if err := l.client.ClearFaults(ctx); err != nil {
		t.Fatal(err)
	}
	if target := l.target(t, "10.90.1.200"); target.Delay != 0 || target.Plain {
		t.Errorf("after clear: delay %s, plain %t", target.Delay, target.Plain)
	}
	if _, err := l.efs().DescribeFileSystems(ctx, nil); err != nil {
		t.Errorf("after clear: %v", err)
	}
	if got := l.greeting(t, "10.90.1.200", "", ""); got == "" {
		t.Error("after clear: no greeting")
	}
	status, err := l.client.Status(ctx)
	if err != nil || len(status.Faults) != 0 || status.Calls[efsapi.DescribeFileSystems]["AccessDeniedException"] == 0 {
		t.Errorf("got %+v, %v", status, err)
	}
}

func TestMetadataAndDNSAreServed(t *testing.T) {
	l := newLab(t)
	l.startWithFakeServers(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://169.254.169.254/latest/meta-data/mac", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{}}).Do(r)
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("metadata without a token: %v, %v", answer, err)
	}
	question := new(dns.Msg).SetQuestion("elasticfilesystem.us-east-1.amazonaws.com.", dns.TypeA)
	reply, _, err := (&dns.Client{Timeout: time.Minute}).ExchangeContext(t.Context(), question, state.HostPort(53))
	if err != nil || len(reply.Answer) != 1 {
		t.Errorf("name of the API: %v, %v", reply, err)
	}
}

func TestRunFailsWithoutGanesha(t *testing.T) {
	err := Run(t.Context(), state.Lab{Name: "t", Dir: t.TempDir()}, ganesha.Root(t.TempDir()), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "nfs-ganesha-vfs") {
		t.Errorf("got %v, want the packages that are missing", err)
	}
}
