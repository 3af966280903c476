package standin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/efs"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

const shared, archive = "fs-0123456789abcdef0", "fs-0123456789abcdef1"

// lab is a stand-in in the tests' own network namespace.
type lab struct {
	cfg    Config
	client *Client
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
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "delete", "lab0").Run() //nolint:noctx // the test's context has ended
	})
	dir := t.TempDir()
	l := &lab{roots: x509.NewCertPool(), cfg: Config{
		StateDir: filepath.Join(dir, "efs"), LogDir: filepath.Join(dir, "logs"), AdminSocket: filepath.Join(dir, "admin.sock"),
		Region: "us-east-1", VPCID: "vpc-0123456789abcdef0",
		Zones: []Zone{
			{Name: "us-east-1a", ID: "use1-az1", SubnetID: "subnet-0a", CIDR: "10.90.1.0/24"},
			{Name: "us-east-1b", ID: "use1-az2", SubnetID: "subnet-0b", CIDR: "10.90.2.0/24"},
		},
		Bridge: "lab0", APIAddress: "10.90.0.1:4566", MetadataAddress: "169.254.169.254:80", DNSAddress: "10.90.0.1:53",
		CACertFile: filepath.Join(dir, "ca.crt"), CAKeyFile: filepath.Join(dir, "ca.key"),
		AccessKeyID: "AKIALAB", SecretAccessKey: "secret",
		GaneshaRoot: os.Getenv("LAB_GANESHA_ROOT"), ProcDir: filepath.Join(dir, "parts"),
	}}
	l.roots.AddCert(makeAuthority(t, l.cfg.CACertFile, l.cfg.CAKeyFile))
	l.client = NewClient(l.cfg.AdminSocket)
	return l
}

func makeAuthority(t *testing.T, certFile, keyFile string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "efs-ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
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
	url := "http://" + l.cfg.APIAddress
	return efs.New(efs.Options{
		Region: l.cfg.Region, BaseEndpoint: &url,
		Credentials: credentials.NewStaticCredentialsProvider(l.cfg.AccessKeyID, l.cfg.SecretAccessKey, ""),
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

// signed is the proof of a client with the lab's credentials.
func (l *lab) signed() *mountauthtest.IAM {
	return &mountauthtest.IAM{
		AccessKeyID: l.cfg.AccessKeyID, SecretAccessKey: l.cfg.SecretAccessKey, SessionToken: "token+of/the=lab", Region: l.cfg.Region, At: time.Now(),
	}
}
