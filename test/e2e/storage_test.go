//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The file systems of a new lab.
const (
	shared  = "fs-0123456789abcdef0"
	archive = "fs-0123456789abcdef1"
)

// directory is a volume's directory on the stand-in's server.
type directory struct {
	lab              *lab
	volume           string // the PersistentVolume's name
	fileSystem, path string
}

// waitForClaim waits until a claim is bound, and returns its directory.
func (l *lab) waitForClaim(namespace, claim string) directory {
	l.Helper()
	return l.directoryOf(l.waitForVolume(namespace, claim))
}

func (l *lab) directoryOf(volume string) directory {
	l.Helper()
	return l.parseDirectory(l.kubectl("get", "pv", volume, "-o", "jsonpath="+directoryTemplate))
}

// directories returns the directories of the volumes of a namespace's claims.
func (l *lab) directories(namespace string) []directory {
	l.Helper()
	const template = `jsonpath={range .items[?(@.spec.claimRef.namespace=="%s")]}%s{"\n"}{end}`
	var all []directory
	for line := range strings.Lines(l.kubectl("get", "pv", "-o", fmt.Sprintf(template, namespace, directoryTemplate))) {
		all = append(all, l.parseDirectory(line))
	}
	return all
}

const directoryTemplate = `{.metadata.name} {.metadata.annotations.efs-stunnel\.gnuthought\.com/file-system-id} {.metadata.annotations.efs-stunnel\.gnuthought\.com/path}`

func (l *lab) parseDirectory(line string) directory {
	l.Helper()
	fields := strings.Fields(line)
	if len(fields) != 3 || fields[2] == "/" {
		l.Fatalf("a volume with its file system and path is %q", line)
	}
	return directory{lab: l, volume: fields[0], fileSystem: fields[1], path: fields[2]}
}

// file returns the path of a file on this machine.
func (d directory) file(name string) string {
	return filepath.Join(d.lab.dir, "efs", "data", d.fileSystem, d.path, name)
}

// stateFile returns the path of a file beside the ledger of the directory's file system.
func (d directory) stateFile(names ...string) string {
	return filepath.Join(append([]string{d.lab.dir, "efs", "data", d.fileSystem, ".efs-stunnel"}, names...)...)
}

// write writes the file "file" on the server, as a pod does.
func (d directory) write(text string) {
	d.lab.Helper()
	if err := os.WriteFile(d.file("file"), []byte(text), 0o644); err != nil {
		d.lab.Fatal(err)
	}
}

func (d directory) expectFile(name, text string) {
	d.lab.Helper()
	if missing := d.mismatch(name, text); missing != "" {
		d.lab.Error(missing)
	}
}

// waitForFile is expectFile for a file that is still to be written.
func (d directory) waitForFile(name, text string) {
	d.lab.Helper()
	d.lab.eventually(d.file(name), func() string { return d.mismatch(name, text) })
}

func (d directory) mismatch(name, text string) (missing string) {
	got, err := os.ReadFile(d.file(name))
	if err != nil || string(got) != text {
		return fmt.Sprintf("%s of %s holds %q, %v; want %q", name, d.path, got, err, text)
	}
	return ""
}

// stat returns the state of a file on the server; "" is the directory itself.
func (d directory) stat(name string) *syscall.Stat_t {
	d.lab.Helper()
	info, err := os.Stat(d.file(name))
	if err != nil {
		d.lab.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		d.lab.Fatalf("%s has a state of type %T", d.file(name), info.Sys())
	}
	return stat
}

// waitForRemoved waits until the directory exists neither at its path nor in the trash.
func (d directory) waitForRemoved() {
	d.lab.Helper()
	d.lab.eventually(d.path+" to go", func() string {
		if found := d.found(); found != "" {
			return "the server has it at " + found
		}
		return ""
	})
}

// found returns where the server has the directory: "path", "trash", both or "".
func (d directory) found() string {
	d.lab.Helper()
	var found []string
	for _, at := range []struct{ place, pattern string }{
		{"path", d.file("")},
		{"trash", d.stateFile("trash", d.volume)},           // to be removed by the next sweep
		{"trash", d.stateFile("trash", "[0-9]*", d.volume)}, // or at the time of its bucket
	} {
		files, err := filepath.Glob(at.pattern)
		if err != nil {
			d.lab.Fatal(err)
		}
		if len(files) > 0 {
			found = append(found, at.place)
		}
	}
	return strings.Join(found, " ")
}

// owners returns the volumes in the ledger for the directory.
func (d directory) owners() []string {
	d.lab.Helper()
	entries, err := filepath.Glob(filepath.Join(d.lab.dir, "efs", "data", d.fileSystem, ".efs-stunnel", "owners", d.path, "@*"))
	if err != nil {
		d.lab.Fatal(err)
	}
	for i, entry := range entries {
		entries[i] = strings.TrimPrefix(filepath.Base(entry), "@")
	}
	slices.Sort(entries)
	return entries
}

// claimComesAndGoes: a claim is bound, a pod writes to it, and its directory goes with it.
func (l *lab) claimComesAndGoes(ns, name string, labels ...string) {
	l.Helper()
	l.apply(ns, claim(name, class, labels...))
	data := l.waitForClaim(ns, name)
	l.startUser(ns, name)
	l.inPod(ns, fmt.Sprintf("echo %[1]s > /%[1]s/file", name))
	data.expectFile("file", name+"\n")
	l.deleteUser(ns)
	l.deleteClaim(ns, name, data.volume)
	data.waitForRemoved()
}
