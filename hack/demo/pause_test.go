// Package demo tests what make demo prints.
package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kubectl runs on this machine what the demo runs in the reader's pod.
const kubectl = `#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
for last; do :; done
[ "$last" = /data/lines ] || exit 1
exec awk -v "$3" "$4" "$LINES_FILE"
`

func TestPause(t *testing.T) {
	const lines = "1 10.00\n2 12.50\n3 12.60\n4 13.40\n"
	for name, tt := range map[string]struct {
		lines, from string
		want        string // "" = an error
	}{
		"all lines":                            {lines + "5 13.50\n", "1", "4 lines, each once and in order. Longest pause since line 1: 2.50 seconds\n"},
		"pauses before the line do not count":  {lines + "5 13.50\n", "2", "4 lines, each once and in order. Longest pause since line 2: 0.80 seconds\n"},
		"the last line may be incomplete":      {lines + "5", "3", "4 lines, each once and in order. Longest pause since line 3: 0.80 seconds\n"},
		"a line is missing":                    {"1 10.00\n3 12.60\n4 13.40\n", "1", ""},
		"a line is there twice":                {"1 10.00\n1 10.10\n2 12.60\n", "1", ""},
		"a line was overwritten by other text": {"1 10.00\n\x00\x00\n3 12.60\n4 13.00\n", "1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			data := filepath.Join(dir, "lines")
			if err := os.WriteFile(data, []byte(tt.lines), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o755); err != nil {
				t.Fatal(err)
			}
			pause := exec.CommandContext(t.Context(), "./pause", tt.from)
			pause.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "LINES_FILE="+data)
			out, err := pause.Output()
			if tt.want == "" {
				if err == nil || !strings.HasPrefix(string(out), "line 2 has the number ") {
					t.Errorf("got %q, %v, want an error about line 2", out, err)
				}
				return
			}
			if string(out) != tt.want || err != nil {
				t.Errorf("got %q, %v, want %q", out, err, tt.want)
			}
		})
	}
}
