package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLevelsAreColored(t *testing.T) {
	var out strings.Builder
	const text = "the installation: 1 problem\n\nPROBLEM node n1: AgentMissing\n  PROBLEM of nothing\nNOTE x\nNOTES\nOK\n"
	if n, err := (colored{&out}).Write([]byte(text)); n != len(text) || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	want := "the installation: 1 problem\n\n\x1b[1;31mPROBLEM\x1b[0m node n1: AgentMissing\n  PROBLEM of nothing\n\x1b[1;36mNOTE\x1b[0m x\nNOTES\nOK\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestOnlyATerminalGetsColors: a file or a pipe must not have control characters.
func TestOnlyATerminalGetsColors(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo terminal: ", err)
	}
	defer terminal.Close()
	tests := map[string]struct {
		out           *os.File
		noColor, term string
		want          bool
	}{
		"a terminal":             {terminal, "", "xterm", true},
		"a file":                 {file, "", "xterm", false},
		"a user without colors":  {terminal, "1", "xterm", false},
		"a terminal without any": {terminal, "", "dumb", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", tt.noColor)
			t.Setenv("TERM", tt.term)
			if _, got := colorsOf(tt.out).(colored); got != tt.want {
				t.Errorf("colors: %t, want %t", got, tt.want)
			}
		})
	}
	if _, got := colorsOf(&strings.Builder{}).(colored); got {
		t.Error("a buffer gets colors")
	}
}
