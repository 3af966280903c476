package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func files() []File {
	return []File{
		{Name: "usr/bin/program", Data: []byte("program"), Executable: true},
		{Name: "etc/file", Data: []byte("file")},
		{Name: "usr/lib/file", Data: []byte("file")},
	}
}

var at = time.Unix(1_700_000_000, 0)

func TestBytesDependOnContentOnly(t *testing.T) {
	for name, write := range map[string]func(io.Writer, []File, time.Time) error{"tar": Tar, "tar.gz": TarGz, "zip": Zip} {
		t.Run(name, func(t *testing.T) {
			var first, second bytes.Buffer
			reversed := files()
			slices.Reverse(reversed)
			if err := errors.Join(write(&first, files(), at), write(&second, reversed, at.In(time.FixedZone("other", 3600)))); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first.Bytes(), second.Bytes()) {
				t.Error("the order of the files, or the zone of the time, is in the archive")
			}
		})
	}
}

func TestTarHasFoldersOwnersAndModes(t *testing.T) {
	var b bytes.Buffer
	if err := Tar(&b, files(), at); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %d:%d %d", h.FileInfo().Mode(), h.Name, h.Uid, h.Gid, h.ModTime.Unix()))
	}
	want := []string{
		"drwxr-xr-x etc/ 0:0 1700000000", "-rw-r--r-- etc/file 0:0 1700000000",
		"drwxr-xr-x usr/ 0:0 1700000000", "drwxr-xr-x usr/bin/ 0:0 1700000000", "-rwxr-xr-x usr/bin/program 0:0 1700000000",
		"drwxr-xr-x usr/lib/ 0:0 1700000000", "-rw-r--r-- usr/lib/file 0:0 1700000000",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries mismatch (-want +got):\n%s", diff)
	}
}

func TestZipKeepsPrograms(t *testing.T) {
	var b bytes.Buffer
	if err := Zip(&b, files(), at); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	f := r.File[1]
	if f.Name != "usr/bin/program" || f.Mode() != 0o755 || !f.Modified.Equal(at) {
		t.Errorf("got %s, %s, %s", f.Name, f.Mode(), f.Modified)
	}
}
