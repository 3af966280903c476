//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The file systems that a new lab has.
const (
	shared  = "fs-0123456789abcdef0"
	archive = "fs-0123456789abcdef1"
)

// directory is a volume's, where the stand-in's server keeps it.
type directory struct {
	lab              *lab
	volume           string // the PersistentVolume's name
	fileSystem, path string
}

// claimed waits until a claim is bound, and says where its data is.
func (l *lab) claimed(namespace, claim string) directory {
	l.Helper()
	l.wait(namespace, "jsonpath={.status.phase}=Bound", "pvc/"+claim)
	volume := l.kubectl("-n", namespace, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
	return l.directoryOf(volume)
}

func (l *lab) directoryOf(volume string) directory {
	l.Helper()
	return l.parseDirectory(l.kubectl("get", "pv", volume, "-o", "jsonpath="+directoryTemplate))
}

// directories are those of the volumes that a namespace's claims have.
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
	words := strings.Fields(line)
	if len(words) != 3 || words[2] == "/" {
		l.Fatalf("a volume with its file system and path is %q", line)
	}
	return directory{lab: l, volume: words[0], fileSystem: words[1], path: words[2]}
}

// file is a file's name on this machine.
func (d directory) file(name string) string {
	return filepath.Join(d.lab.dir, "efs", "data", d.fileSystem, d.path, name)
}

// write has the server's disk hold the file "file", as if a pod had written it.
func (d directory) write(text string) {
	d.lab.Helper()
	if err := os.WriteFile(d.file("file"), []byte(text), 0o644); err != nil {
		d.lab.Fatal(err)
	}
}

func (d directory) want(name, text string) {
	d.lab.Helper()
	if missing := d.lacks(name, text); missing != "" {
		d.lab.Error(missing)
	}
}

// await is want for a file that is about to be written.
func (d directory) await(name, text string) {
	d.lab.Helper()
	d.lab.eventually(d.file(name), func() string { return d.lacks(name, text) })
}

func (d directory) lacks(name, text string) (missing string) {
	got, err := os.ReadFile(d.file(name))
	if err != nil || string(got) != text {
		return fmt.Sprintf("%s of %s holds %q, %v; want %q", name, d.path, got, err, text)
	}
	return ""
}

// stat is what the server's disk has of the file or directory name; "" is the directory itself.
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

// wantGone waits until a directory is not there under its name, nor in the trash.
func (d directory) wantGone() {
	d.lab.Helper()
	trash := filepath.Join(d.lab.dir, "efs", "data", d.fileSystem, ".efs-stunnel", "trash", d.volume)
	d.lab.eventually(d.path+" to go", func() string {
		for _, path := range []string{d.file(""), trash} {
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Sprintf("%s is there, %v", path, err)
			}
		}
		return ""
	})
}

// owners are the volumes that the ledger has for a directory.
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

// claim is a claim's text; labels are those of its selector, as key: value.
func claim(name, class string, labels ...string) string {
	selector := ""
	if len(labels) > 0 {
		selector = fmt.Sprintf("  selector: {matchLabels: {%s}}\n", strings.Join(labels, ", "))
	}
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %q}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: %q
  resources: {requests: {storage: 1Gi}}
%s---
`, name, class, selector)
}

// pod is the text of the pod user, which has a volume at /data and does nothing; mount adds to
// how it is mounted.
func pod(volume, mount string) string {
	return user("{name: data, mountPath: /data"+mount+"}", "{name: data, "+volume+"}")
}

// pinned is the text of a pod that runs on a node, and stands some taint of the test's own.
func pinned(node, pod string) string {
	return strings.Replace(pod, "spec:\n", "spec:\n  nodeSelector: {kubernetes.io/hostname: "+node+"}\n  tolerations: [{key: e2e, operator: Exists}]\n", 1)
}

// user is the text of the pod user, of its mounts and volumes.
func user(mounts, volumes string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: registry.lab:5000/lab/toolbox:1
    command: [sleep, infinity]
    volumeMounts: [%s]
  volumes: [%s]
---
`, mounts, volumes)
}
