package stunnelcfg_test

import (
	"bufio"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/tunnel/stunneltest"
)

// The real program takes every golden file as it is, but for ports and files that are not here.
func TestStunnelTakesEveryGoldenFile(t *testing.T) {
	program := stunneltest.Path(t)
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
			startsWith(t, program, text)
		})
	}
}

func bracketed(address netip.Addr) string {
	if address.Is4() {
		return address.String()
	}
	return "[" + address.String() + "]"
}

// startsWith runs stunnel until it accepts connections.
func startsWith(t *testing.T, program, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stunnel.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, file)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log []string
	taken := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		log = append(log, lines.Text())
		taken = taken || strings.HasSuffix(lines.Text(), "Configuration successful")
		if taken && strings.Contains(lines.Text(), "Accepting new connections") {
			break
		}
		if strings.Contains(lines.Text(), "LOG4") || strings.Contains(lines.Text(), "LOG3") {
			t.Errorf("stunnel has something to say against it: %s", lines.Text())
		}
	}
	if !taken {
		t.Errorf("stunnel does not take it:\n%s\nconfiguration:\n%s", strings.Join(log, "\n"), config)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Log("it has ended by itself:", err)
	}
	// Killed, so there is no good ending.
	_ = cmd.Wait()
}
