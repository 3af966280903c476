package operations

import (
	"strings"
	"testing"
	"time"
)

func TestUnixMode(t *testing.T) {
	for name, tt := range map[string]struct {
		directory Directory
		gid       int
		want      uint32
	}{
		"default":            {Directory{}, 0, 0o777},
		"with allocated gid": {Directory{}, 2000, 0o2771},
		"given":              {Directory{Mode: "0750"}, 2000, 0o750},
		"the highest":        {Directory{Mode: "7777"}, 0, 0o7777},
		"none at all":        {Directory{Mode: "0"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := tt.directory.UnixMode(tt.gid); err != nil || got != tt.want {
				t.Errorf("got %o, error %v, want %o", got, err, tt.want)
			}
		})
	}
}

func TestUnixModeRefuses(t *testing.T) {
	for _, mode := range []string{"10000", "0o750", "rwxr-xr-x", "-1", "+1", " 750", "8", strings.Repeat("1", 100)} {
		if got, err := (Directory{Mode: mode}).UnixMode(0); err == nil || len(err.Error()) > 150 {
			t.Errorf("%q is %o, error %v", mode, got, err)
		}
	}
}

func TestGIDRangeHasDefaults(t *testing.T) {
	for name, tt := range map[string]struct {
		directory       Directory
		lowest, highest int
	}{
		"neither is given":       {Directory{}, 2000, MaxID},
		"the lowest is given":    {Directory{GIDMin: 3000}, 3000, MaxID},
		"the highest is given":   {Directory{GIDMax: 2500}, 2000, 2500},
		"both are given":         {Directory{GIDMin: 5, GIDMax: 6}, 5, 6},
		"an invalid one is kept": {Directory{GIDMin: -1, GIDMax: -2}, -1, -2},
	} {
		if lowest, highest := tt.directory.GIDRange(); lowest != tt.lowest || highest != tt.highest {
			t.Errorf("%s: from %d to %d, want %d to %d", name, lowest, highest, tt.lowest, tt.highest)
		}
	}
}

func TestParseKeep(t *testing.T) {
	for keep, want := range map[string]struct {
		duration time.Duration
		forever  bool
		refused  bool
	}{
		"":                       {},
		"0":                      {},
		"0s":                     {},
		"72h":                    {duration: 72 * time.Hour},
		"1ns":                    {duration: 1},
		"forever":                {forever: true},
		"Forever":                {refused: true},
		"-1ns":                   {refused: true},
		"7d":                     {refused: true},
		"72":                     {refused: true},
		"9999999h":               {refused: true},
		strings.Repeat("1", 999): {refused: true},
	} {
		duration, forever, err := ParseKeep(keep)
		if duration != want.duration || forever != want.forever || (err != nil) != want.refused {
			t.Errorf("%.20q is kept for %s, forever %t, error %v; want %+v", keep, duration, forever, err, want)
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("a message of %d bytes", len(err.Error()))
		}
	}
}

func TestAddsOwner(t *testing.T) {
	for kind, want := range map[Kind]bool{Setup: true, Restore: true, Cleanup: false, Release: false, "": false} {
		if got := (Operation{Kind: kind}).AddsOwner(); got != want {
			t.Errorf("a %s adds an owner: %t", kind, got)
		}
	}
}
