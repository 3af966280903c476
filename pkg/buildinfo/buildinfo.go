// Package buildinfo says which build a program is.
package buildinfo

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// Info is what the Go toolchain wrote into the program.
type Info struct {
	Version  string // of the module: a tag, or a pseudo-version of the commit; "unknown" without
	Revision string // the commit, "" when it was not built from a checkout
	Go       string // the toolchain
}

// Read reads it.
func Read() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{Version: "unknown"}
	}
	return from(info)
}

func from(build *debug.BuildInfo) Info {
	info := Info{Version: cmp.Or(build.Main.Version, "unknown"), Go: build.GoVersion}
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" {
			info.Revision = setting.Value
		}
	}
	return info
}

// String is one line for people.
func (i Info) String() string {
	return strings.Join(strings.Fields(i.Version+" "+i.Revision+" "+i.Go), " ")
}
