package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/test/support/loggingtest"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// testTimeout is long enough for a busy machine.
const testTimeout = 30 * time.Second

func noEnv(string) string { return "" }

func TestFlagsOverrideEnvironment(t *testing.T) {
	stunnel := stunneltest.Path(t)
	env := map[string]string{"STUNNEL_CONF_PATH": "/run/x/s.conf", "STUNNEL_PATH": stunnel, "LOGGING_LEVEL": "WARNING"}
	o, _, err := parseOptions([]string{"--stunnel-conf", "/run/y/s.conf", "--log-format", "json"}, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if o.Prefix != "/run/y/s.conf" || o.Stunnel != stunnel || o.log.Level.String() != "WARN" || o.log.Format != "json" {
		t.Errorf("got %+v, want flags over variables", o)
	}
}

func TestInvalidSettingsAreUsageErrors(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string // in the line
	}{
		"relative prefix":          {[]string{"--stunnel-conf", "s.conf"}, "--stunnel-conf"},
		"prefix is a directory":    {[]string{"--stunnel-conf", "/run/"}, "--stunnel-conf"},
		"missing program":          {[]string{"--stunnel", "/nowhere/stunnel"}, "/nowhere/stunnel"},
		"empty program":            {[]string{"--stunnel", ""}, "--stunnel"},
		"level":                    {[]string{"--log-level", "LOUD"}, "LOUD"},
		"unexpected argument":      {[]string{"now"}, "now"},
		"negative idle":            {[]string{"--tunnel-idle", "-1s"}, "--tunnel-idle"},
		"launch without arguments": {[]string{"launch"}, "want launch PROGRAM"},
		"launch with too much":     {[]string{"launch", "/bin/true", "/x", "/y"}, "want launch PROGRAM"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), tt.args, noEnv, &stdout, &stderr)
			if code != program.ExitUsage || !strings.Contains(stderr.String(), tt.want) || strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("got exit code %d and %q, want 2 and one line that names %s", code, stderr.String(), tt.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, noEnv, &stdout, &stderr); code != program.ExitDone || !strings.Contains(stdout.String(), "STUNNEL_CONF_PATH") {
		t.Errorf("got exit code %d and %q", code, stdout.String())
	}
}

func TestRunReturnsWhenContextEnds(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "stunnel.conf")
	dir, err := confdir.Open(prefix)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stderr loggingtest.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"--stunnel-conf", prefix, "--stunnel", stunneltest.Path(t)}, noEnv, os.Stdout, &stderr)
	}()
	for deadline := time.Now().Add(testTimeout); ; <-time.After(5 * time.Millisecond) {
		if _, err := supervise.ReadStatus(dir); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			t.Fatalf("no status: %v; log:\n%s", err, stderr.String())
		}
	}
	cancel()
	if code := <-ended; code != program.ExitDone || !strings.Contains(stderr.String(), "supervisor stopped") {
		t.Errorf("got exit code %d and log\n%s", code, stderr.String())
	}
}

func TestMissingDirectoryFails(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := []string{"--stunnel-conf", filepath.Join(t.TempDir(), "missing", "s.conf"), "--stunnel", stunneltest.Path(t)}
	if code := run(t.Context(), args, noEnv, &stdout, &stderr); code != program.ExitFailed || !strings.Contains(stderr.String(), "missing") {
		t.Errorf("got exit code %d and %q", code, stderr.String())
	}
}

// TestFIPSRequiresGoAndStunnel runs itself in both of Go's modes, which a process cannot change. The
// programs say that they are stunnel; the real one is tested in pkg/stunnelcfg.
func TestFIPSRequiresGoAndStunnel(t *testing.T) {
	if os.Getenv("EFS_FIPS") != "" {
		args := []string{"--stunnel-conf", filepath.Join(t.TempDir(), "stunnel.conf")}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		fmt.Println("exit code", run(ctx, args, os.Getenv, os.Stdout, os.Stderr))
		return
	}
	without := filepath.Join(t.TempDir(), "stunnel")
	script := "#!/bin/sh\n" + `echo 'stunnel 5.68 on x86_64-pc-linux-gnu platform'
echo 'Threading:PTHREAD Sockets:POLL,SYSTEMD TLS:OCSP,SNI'
echo 'checkHost = x'; echo 'verifyChain = x'; echo 'sslVersionMin = x'
`
	if err := os.WriteFile(without, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]struct {
		code int
		text string
	}{
		"off": {program.ExitUsage, `EFS_FIPS "true": want an image whose Go programs are built with GOFIPS140`},
		"on":  {program.ExitFailed, "stunnel 5.68 has no FIPS mode, which is required: want one for which stunnel -version lists FIPS"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140="+mode, "EFS_FIPS=true", "STUNNEL_PATH="+without)
		output, err := cmd.CombinedOutput()
		if code := fmt.Sprint("exit code ", want.code); err != nil || !strings.Contains(string(output), code) || !strings.Contains(string(output), want.text) {
			t.Errorf("with GODEBUG=fips140=%s: %v; want %s and %q in\n%s", mode, err, code, want.text, output)
		}
	}
}
