package standin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/efs"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

const shared, archive = "fs-0123456789abcdef0", "fs-0123456789abcdef1"

// lab is a stand-in in the tests' own network namespace.
type lab struct {
	state.Lab
	client *admin.Client
	roots  *x509.CertPool
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv(inNamespace) == "" {
		t.Skip("needs a network namespace, which only root can make")
	}
	for _, args := range []string{
		"link set lo up", "link add lab0 type bridge", "address replace 10.90.0.1/16 dev lab0",
		"address replace 169.254.169.254/32 dev lab0", "link set lab0 up",
		"address replace fd00:90::1/32 dev lab0 nodad", "address replace fd00:ec2::254/128 dev lab0 nodad",
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "delete", "lab0").Run() //nolint:noctx // the test's context has ended
	})
	l := &lab{Lab: state.Lab{Name: "t", Dir: t.TempDir()}, roots: x509.NewCertPool()}
	authority, err := l.PKI().Authority(efsCA)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.ReadFile(authority.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	l.roots.AppendCertsFromPEM(root)
	l.client = admin.NewClient(l.StandinSocket())
	return l
}

// start runs the stand-in until the returned function is called.
func (l *lab) start(t *testing.T, run func(ctx context.Context, log *slog.Logger) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	go func() { ended <- run(ctx, log) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stand-in ended with %v", err)
		}
	}
	t.Cleanup(stop)
	await(t, "the stand-in", func() error {
		select {
		case err := <-ended:
			t.Fatalf("stand-in ended with %v", err)
		default:
		}
		return l.client.Ready(ctx)
	})
	return stop
}

// await polls until the condition is met.
func await(t *testing.T, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.Tick(20 * time.Millisecond); ; {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", what, err)
		case <-tick:
		}
	}
}

func (l *lab) efs() *efs.Client {
	url := "http://" + state.HostPort(state.EFSAPIPort)
	return efs.New(efs.Options{
		Region: state.Region, BaseEndpoint: &url,
		Credentials: credentials.NewStaticCredentialsProvider(accessKeyID, secretAccessKey, ""),
	})
}

// dial opens a connection to a mount target as a mount helper does; either id
// may be "".
func (l *lab) dial(t *testing.T, address, accessPoint, fileSystem string) *tls.Conn {
	t.Helper()
	if accessPoint == "" && fileSystem == "" {
		return l.dialWith(t, address)
	}
	return l.dialAs(t, address, mountauthtest.Client{FileSystemID: fileSystem, AccessPointID: accessPoint})
}

func (l *lab) dialAs(t *testing.T, address string, client mountauthtest.Client) *tls.Conn {
	t.Helper()
	return l.dialWith(t, address, mountauthtest.Certificate(t, client))
}

func (l *lab) dialWith(t *testing.T, address string, certificates ...tls.Certificate) *tls.Conn {
	t.Helper()
	config := &tls.Config{
		RootCAs: l.roots, ServerName: shared + ".efs.us-east-1.amazonaws.com", MinVersion: tls.VersionTLS12, Certificates: certificates,
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", net.JoinHostPort(address, nfsPort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	secure, ok := conn.(*tls.Conn)
	if !ok {
		t.Fatal("not TLS")
	}
	_ = secure.SetDeadline(time.Now().Add(time.Minute))
	return secure
}

// signed returns the signature of a client with the lab's credentials.
func (l *lab) signed() *mountauthtest.IAM {
	return &mountauthtest.IAM{
		AccessKeyID: accessKeyID, SecretAccessKey: secretAccessKey, SessionToken: "token+of/the=lab", Region: state.Region, At: time.Now(),
	}
}
