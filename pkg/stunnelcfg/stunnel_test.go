package stunnelcfg_test

import (
	"bufio"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// TestStunnelAcceptsGoldenFiles replaces only the ports and the files that do not exist here. Debian 12
// has no FIPS provider, so its stunnel must refuse FIPS mode.
func TestStunnelAcceptsGoldenFiles(t *testing.T) {
	program := stunneltest.Path(t)
	features, err := supervise.QueryFeatures(t.Context(), program, false)
	if err != nil {
		t.Fatal(err)
	}
	authority := stunneltest.NewAuthority(t)
	cert, key := authority.ClientFiles(t)
	for name, tt := range goldens() {
		t.Run(name, func(t *testing.T) {
			accept := tt.tunnel.Accept
			free := stunneltest.FreePort(t, accept.Addr().String())
			text := strings.NewReplacer(
				tt.tunnel.CAFile, authority.File,
				"/run/efs-stunnel/client.pem", cert, "/run/efs-stunnel/client.key", key,
				":20490\n", strings.TrimPrefix(free.String(), bracketed(free.Addr()))+"\n",
			).Replace(readTestdata(t, name+".conf"))
			if !strings.Contains(text, "accept = "+strings.Trim(free.Addr().String(), "[]")+":") || strings.Contains(text, ":20490\n") {
				t.Fatalf("the port was not replaced in\n%s", text)
			}
			checkStart(t, program, text, features.FIPS || !tt.fips)
		})
	}
}

func bracketed(address netip.Addr) string {
	if address.Is4() {
		return address.String()
	}
	return "[" + address.String() + "]"
}

// checkStart runs stunnel until it accepts connections, or refuses to.
func checkStart(t *testing.T, program, config string, want bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stunnel.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // an interrupted test cleans nothing up
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log []string
	accepted := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		log = append(log, lines.Text())
		accepted = accepted || strings.HasSuffix(lines.Text(), "Configuration successful")
		if accepted && strings.Contains(lines.Text(), "Accepting new connections") {
			break
		}
		if want && strings.Contains(lines.Text(), "LOG4") || strings.Contains(lines.Text(), "LOG3") {
			t.Errorf("stunnel logged a warning or an error: %s", lines.Text())
		}
	}
	if accepted != want {
		t.Errorf("stunnel accepted the configuration: %v, want %v:\n%s\nconfiguration:\n%s", accepted, want, strings.Join(log, "\n"), config)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Log("stunnel has exited:", err)
	}
	// It returns an error, as the process was killed.
	_ = cmd.Wait()
}
