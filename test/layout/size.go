package layout

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// The most lines without tests of a room, which is a folder of pkg or cmd, and of all rooms together, and the most
// folders of pkg. A feature that needs more pays with what it makes unnecessary: docs/adr/0083 says why, and where it
// should lead.
const (
	MaxRoomLines  = 3_000
	MaxHouseLines = 55_300
	MaxFolders    = 14
)

// CheckSize returns findings about the rooms among some packages.
func CheckSize(pkgs []Package) (findings []string) {
	total := 0
	var folders []string
	for _, p := range pkgs {
		parts := strings.Split(p.folder(), "/")
		if parts[0] != "pkg" && parts[0] != "cmd" {
			continue
		}
		lines := 0
		for _, f := range p.built() {
			lines += f.Lines
		}
		if lines > MaxRoomLines {
			findings = append(findings, fmt.Sprintf("%s: %d lines without tests, more than %d", p.folder(), lines, MaxRoomLines))
		}
		if total += lines; parts[0] == "pkg" && len(parts) > 1 {
			folders = append(folders, path.Join(parts[:2]...))
		}
	}
	if total > MaxHouseLines {
		findings = append(findings, fmt.Sprintf("pkg and cmd: %d lines without tests, more than %d", total, MaxHouseLines))
	}
	slices.Sort(folders)
	if folders = slices.Compact(folders); len(folders) > MaxFolders {
		findings = append(findings, fmt.Sprintf("pkg: %d folders, more than %d", len(folders), MaxFolders))
	}
	return findings
}
