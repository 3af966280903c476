package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is every file's time in an image.
var epoch = time.Unix(0, 0)

// File is a file of an image, or a folder with all its content.
type File struct {
	Source string // on this machine
	Target string // absolute, in the image
}

// ParseFile reads SOURCE:TARGET.
func ParseFile(text string) (File, error) {
	source, target, ok := strings.Cut(text, ":")
	if !ok || source == "" || !path.IsAbs(target) {
		return File{}, fmt.Errorf("file %q: want SOURCE:TARGET with an absolute TARGET, for example bin/manager:/manager", text)
	}
	return File{Source: source, Target: path.Clean(target)}, nil
}

func layerOf(files []File) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := addTree(w, f); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("writing layer: %w", err)
	}
	// Sending a layer to a node is fast, and an emulated node decompresses slowly, also what is only wrapped.
	return static.NewLayer(b.Bytes(), types.DockerUncompressedLayer), nil
}

func addTree(w *tar.Writer, f File) error {
	return filepath.WalkDir(f.Source, func(source string, _ fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading %s: %w", f.Source, err)
		}
		rel, err := filepath.Rel(f.Source, source)
		if err != nil {
			return fmt.Errorf("reading %s: %w", f.Source, err)
		}
		return addOne(w, source, path.Join(f.Target, filepath.ToSlash(rel)))
	})
}

func addOne(w *tar.Writer, source, target string) error {
	info, err := os.Lstat(source)
	if err != nil {
		return fmt.Errorf("reading %s: %w", source, err)
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(source); err != nil {
			return fmt.Errorf("reading %s: %w", source, err)
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return fmt.Errorf("adding %s: %w", source, err)
	}
	header.Name = strings.TrimPrefix(target, "/")
	if header.Name == "" {
		return nil // the image's root exists already
	}
	plain(header, info)
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("adding %s: %w", source, err)
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	return copyInto(w, source)
}

// plain removes from the header what differs between two builds of the same content, and keeps owners
// by number.
func plain(header *tar.Header, info fs.FileInfo) {
	header.Uname, header.Gname = "", ""
	header.ModTime, header.AccessTime, header.ChangeTime = epoch, epoch, epoch
	header.Format = tar.FormatPAX
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		header.Uid, header.Gid = int(st.Uid), int(st.Gid)
	}
}

func copyInto(w io.Writer, source string) error {
	f, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("adding %s: %w", source, err)
	}
	defer f.Close()
	if _, err := io.Copy(w, f); err != nil {
		return fmt.Errorf("adding %s: %w", source, err)
	}
	return nil
}

func fileOpener(file string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return os.Open(file) }
}
