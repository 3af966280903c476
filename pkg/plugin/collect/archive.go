package collect

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"time"
)

// Archive is the collected files.
type Archive struct {
	// Unread are the rights that were missing.
	Unread []string

	time    time.Time
	files   []file
	left    []string // what is not in the archive, and why
	account bool     // account ids are replaced
}

type file struct {
	name, purpose, text string
}

// Name returns the name of the archive's file. Without its ending, it is the name of the folder in it.
func (a *Archive) Name() string { return a.folder() + ".tar.gz" }

func (a *Archive) folder() string { return "efs-stunnel-" + a.time.UTC().Format("20060102T150405Z") }

// Files returns the names and sizes of all files, the index first.
func (a *Archive) Files() []string {
	var all []string
	for _, f := range a.all() {
		all = append(all, fmt.Sprintf("%-60s %9d", f.name, len(f.text)))
	}
	return all
}

// all files; the index is the first, so that a listing of the archive shows it first.
func (a *Archive) all() []file {
	return append([]file{{"README.txt", "this text", a.index()}}, a.files...)
}

func (a *Archive) index() string {
	var out strings.Builder
	fmt.Fprintf(&out, "State of an installation of efs-stunnel, collected by kubectl efs-stunnel at %s.\n\n", a.time.UTC().Format(time.RFC3339))
	out.WriteString("Secrets were not read. What looks like a credential, by its name or its form, was replaced by " + removed + ".\n" +
		"Annotations of other programs were removed, too. Names of namespaces, claims, nodes and addresses are as they are.\n")
	if a.account {
		out.WriteString("Numbers that may be AWS accounts were replaced by " + removedAccount + ".\n")
	}
	out.WriteString("Read the files before you publish them: not everything that is secret can be recognized.\n\nFiles:\n")
	for _, f := range a.files {
		fmt.Fprintf(&out, "  %-60s %9d bytes  %s\n", f.name, len(f.text), f.purpose)
	}
	out.WriteString("\nNot read, because the right is missing:\n")
	out.WriteString(listed(a.Unread))
	out.WriteString("\nNot collected:\n")
	out.WriteString(listed(a.left))
	return out.String()
}

func listed(lines []string) string {
	if len(lines) == 0 {
		return "  nothing\n"
	}
	return "  " + strings.Join(lines, "\n  ") + "\n"
}

// Write writes the archive as a compressed tar.
func (a *Archive) Write(w io.Writer) error {
	compressed := gzip.NewWriter(w)
	packed := tar.NewWriter(compressed)
	for _, f := range a.all() {
		header := &tar.Header{Name: a.folder() + "/" + f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: a.time, Typeflag: tar.TypeReg}
		if err := packed.WriteHeader(header); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
		if _, err := io.WriteString(packed, f.text); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	if err := packed.Close(); err != nil {
		return err
	}
	return compressed.Close()
}
