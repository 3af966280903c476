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

	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// answering makes a program that answers questions by shell commands.
func (w *world) answering(commands string) {
	w.Helper()
	path := filepath.Join(w.TempDir(), "stunnel")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+commands+"\nexec "+w.program+" \"$@\"\n"), 0o700); err != nil {
		w.Fatal(err)
	}
	w.program = path
}

// A supervisor that ran all the same would have the agent's pod get ready without one tunnel.
func TestStunnelThatCanRunNoTunnel(t *testing.T) {
	tests := map[string]struct {
		commands string
		says     []string
	}{
		"a library is missing": {
			"echo 'error while loading shared libraries: libssl.so.3: cannot open shared object file' >&2; exit 127",
			[]string{"of unknown version has no option checkHost", "libssl.so.3: cannot open"},
		},
		"an old one": {
			"case $1 in -version) echo 'stunnel 5.06 on x86_64-pc-linux-gnu platform'; exit;; -help) echo 'verify = level'; exit;; esac",
			[]string{"stunnel 5.06 has no option checkHost: want version", "stunnel 5.06 on x86_64-pc-linux-gnu platform"},
		},
		"it crashes": {"kill -SEGV $$", []string{"-version: signal: segmentation fault"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.answering(tt.commands)
			ctx, cancel := context.WithTimeout(t.Context(), patience/2)
			defer cancel()
			err := supervise.Run(ctx, supervise.Options{Prefix: w.prefix, Stunnel: w.program, Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				t.Fatal("it supervised until it was told to end")
			}
			for _, part := range append(tt.says, w.program) {
				if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %q, want one line with %q", err, part)
				}
			}
			if _, err := supervise.ReadStatus(w.dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it wrote a status (%v)", err)
			}
		})
	}
}

// A node without memory or time says nothing of the program.
func TestStunnelThatIsKilledIsAskedAgain(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	asked := filepath.Join(t.TempDir(), "asked")
	w.answering("[ -e " + asked + " ] || { touch " + asked + "; kill -KILL $$; }")
	began := time.Now()
	w.supervise()
	w.serving("fs-1", generation)
	w.echo(w.dial(tunnel.Accept))
	if lines := w.log.lines("asking again"); len(lines) != 1 {
		t.Errorf("after %s got %q, want one line that says so", time.Since(began), lines)
	}
}
