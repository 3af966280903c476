package supervise_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
)

// useWrapper puts shell commands in front of stunnel.
func (h *harness) useWrapper(commands string) {
	h.Helper()
	path := filepath.Join(h.TempDir(), "stunnel")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+commands+"\nexec "+h.program+" \"$@\"\n"), 0o700); err != nil {
		h.Fatal(err)
	}
	h.program = path
}

func TestStunnelWithoutRequiredFeatureFailsRun(t *testing.T) {
	tests := map[string]struct {
		commands string
		want     []string
	}{
		"missing library": {
			"echo 'error while loading shared libraries: libssl.so.3: cannot open shared object file' >&2; exit 127",
			[]string{"of unknown version has no option checkHost", "libssl.so.3: cannot open"},
		},
		"old version": {
			"case $1 in -version) echo 'stunnel 5.06 on x86_64-pc-linux-gnu platform'; exit;; -help) echo 'verify = level'; exit;; esac",
			[]string{"stunnel 5.06 has no option checkHost: want version", "stunnel 5.06 on x86_64-pc-linux-gnu platform"},
		},
		"crash": {"kill -SEGV $$", []string{": signal: segmentation fault"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.useWrapper(tt.commands)
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout/2)
			defer cancel()
			err := supervise.Run(ctx, supervise.Options{Prefix: h.prefix, Stunnel: h.program, Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				t.Fatal("got no error, want one before the context ends")
			}
			for _, part := range append(tt.want, h.program) {
				if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %q, want one line with %q", err, part)
				}
			}
			if _, err := supervise.ReadStatus(h.dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got error %v of reading the status, want no status file", err)
			}
		})
	}
}

// TestKilledFeatureQueryIsRetried is the case of a node that runs out of memory.
func TestKilledFeatureQueryIsRetried(t *testing.T) {
	h := newHarness(t)
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	marker := filepath.Join(t.TempDir(), "marker")
	h.useWrapper("[ -e " + marker + " ] || { touch " + marker + "; kill -KILL $$; }")
	began := time.Now()
	h.startSupervisor()
	h.waitServing("fs-1", generation)
	h.checkEcho(h.dial(tunnel.Accept))
	if lines := h.log.lines("retrying"); len(lines) != 1 {
		t.Errorf("after %s got %q, want one line about the retry", time.Since(began), lines)
	}
}

// TestFIPSModeOrNothing: Debian 12 has no FIPS provider, so its stunnel refuses the mode, although it is
// made to say that it has it.
func TestFIPSModeOrNothing(t *testing.T) {
	h := newHarness(t)
	features, err := supervise.QueryFeatures(t.Context(), h.program, false)
	if err != nil {
		t.Fatal(err)
	}
	h.useWrapper("[ $1 != -version ] || { " + h.program + " -version 2>&1 | sed 's/TLS:/TLS:FIPS,/'; exit; }")
	h.changeOptions = func(o *supervise.Options) { o.FIPS = true }
	h.writeSpec(h.newTunnel("fs-1", h.startServer().Address))
	h.startSupervisor()
	h.waitFor("fs-1", "runs with a FIPS provider only", func(s tunnelspec.TunnelStatus) bool {
		return features.FIPS && s.State == tunnelspec.StateRunning || !features.FIPS && isBadConfig(s)
	})
	if len(h.log.lines("supervising tunnels", "fips=true")) != 1 {
		t.Error("the log does not say that FIPS is required")
	}
	config, err := h.dir.Config("fs-1").Read()
	if err != nil || !strings.Contains(string(config), "\nfips = yes\n") {
		t.Errorf("got %v and the configuration\n%s", err, config)
	}
}
