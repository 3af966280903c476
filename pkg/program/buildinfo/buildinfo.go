// Package buildinfo says which build a program is.
package buildinfo

import (
	"cmp"
	"crypto/fips140"
	"runtime/debug"
	"strings"
)

// Info is what the Go toolchain wrote into the program, and how the program runs.
type Info struct {
	Version  string // of the module: a tag, or a pseudo-version of the commit; "unknown" without
	Revision string // the commit, "" when it was not built from a checkout
	Go       string // the toolchain
	FIPS140  string // the version of Go's FIPS 140-3 module that is in use, "off" without
}

// Read reads it.
func Read() Info {
	build, _ := debug.ReadBuildInfo() // nil without
	return from(cmp.Or(build, &debug.BuildInfo{}), fips140Module())
}

// fips140Module depends on GOFIPS140 of the build and GODEBUG of the process.
func fips140Module() string {
	if !fips140.Enabled() {
		return "off"
	}
	return fips140.Version()
}

func from(build *debug.BuildInfo, fips140Module string) Info {
	info := Info{Version: cmp.Or(build.Main.Version, "unknown"), Go: build.GoVersion, FIPS140: fips140Module}
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" {
			info.Revision = setting.Value
		}
	}
	return info
}

// String is one line for people.
func (i Info) String() string {
	return strings.Join(strings.Fields(i.Version+" "+i.Revision+" "+i.Go+" fips140="+i.FIPS140), " ")
}
