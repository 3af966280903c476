package controlplane

import (
	"crypto/tls"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

func testPlane(t *testing.T) Plane {
	t.Helper()
	s := state.DefaultSettings()
	s.APIServerPort = 12345
	return Plane{
		Lab:      state.Lab{Name: "t", Dir: t.TempDir()},
		Settings: s,
		Programs: artifacts.Components{Dir: "/programs"},
	}
}

func TestPrepareWritesAllFilesThatThePartsUse(t *testing.T) {
	p := testPlane(t)
	if err := p.Prepare(); err != nil {
		t.Fatal(err)
	}
	p.Settings.Audit = true
	for _, args := range [][]string{p.APIServer().Args, p.ControllerManager().Args, p.Scheduler().Args} {
		for _, arg := range args {
			_, file, _ := strings.Cut(arg, "=")
			if strings.HasPrefix(file, p.Lab.Dir) && !strings.HasSuffix(file, ".log") {
				if _, err := os.Stat(file); err != nil {
					t.Errorf("%s: %v", arg, err)
				}
			}
		}
	}
}

func TestKubeconfigHasTheForwardedPort(t *testing.T) {
	p := testPlane(t)
	if err := p.Prepare(); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.Lab.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(config.Host)
	if err != nil || u.Host != "127.0.0.1:12345" {
		t.Errorf("server %s, %v", config.Host, err)
	}
	if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
		t.Errorf("client certificate: %v", err)
	}
}

func TestSettingsBecomeFlags(t *testing.T) {
	p := testPlane(t)
	quiet := p.APIServer().Args
	if slices.ContainsFunc(quiet, func(a string) bool { return strings.HasPrefix(a, "--audit") }) {
		t.Error("audit log without the setting")
	}
	p.Settings.Audit = true
	if !slices.Contains(p.APIServer().Args, "--audit-log-path="+AuditLog(p.Lab)) {
		t.Error("no audit log with the setting")
	}
	p.Settings.ControllerManagerQPS, p.Settings.ControllerManagerBurst = 5000.5, 10000
	args := p.ControllerManager().Args
	if !slices.Contains(args, "--kube-api-qps=5000.5") || !slices.Contains(args, "--kube-api-burst=10000") {
		t.Errorf("limits are missing in %v", args)
	}
}
