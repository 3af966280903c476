// Package archive writes tar and zip files whose bytes depend on nothing but their content.
package archive

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// File is a file of an archive.
type File struct {
	Name       string // relative, with /
	Link       string // of a symbolic link; "" for a regular file
	Data       []byte
	Executable bool
}

func (f File) mode() fs.FileMode {
	if f.Executable {
		return 0o755
	}
	return 0o644
}

// Tar writes the files, sorted, with the folders that contain them. They belong to root and have one
// time.
func Tar(w io.Writer, files []File, at time.Time) error {
	t := tar.NewWriter(w)
	made := map[string]bool{}
	for _, f := range sorted(files) {
		for _, folder := range parents(f.Name) {
			if made[folder] {
				continue
			}
			made[folder] = true
			header := tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: at, Format: tar.FormatPAX}
			if err := t.WriteHeader(&header); err != nil {
				return fmt.Errorf("adding %s: %w", folder, err)
			}
		}
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: f.Name, Size: int64(len(f.Data)), Mode: int64(f.mode()), ModTime: at, Format: tar.FormatPAX,
		}
		if f.Link != "" {
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.Link, 0o777
		}
		if err := t.WriteHeader(&header); err != nil {
			return fmt.Errorf("adding %s: %w", f.Name, err)
		}
		if _, err := t.Write(f.Data); err != nil {
			return fmt.Errorf("adding %s: %w", f.Name, err)
		}
	}
	return t.Close()
}

// TarGz writes what Tar writes, compressed.
func TarGz(w io.Writer, files []File, at time.Time) error {
	z := gzip.NewWriter(w) // without a name or a time
	if err := Tar(z, files, at); err != nil {
		return err
	}
	return z.Close()
}

// Zip does for Windows what TarGz does for other systems.
func Zip(w io.Writer, files []File, at time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range sorted(files) {
		header := zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: at.UTC()}
		header.SetMode(f.mode())
		entry, err := z.CreateHeader(&header)
		if err != nil {
			return fmt.Errorf("adding %s: %w", f.Name, err)
		}
		if _, err := entry.Write(f.Data); err != nil {
			return fmt.Errorf("adding %s: %w", f.Name, err)
		}
	}
	return z.Close()
}

// Folder reads the files below a folder. None is executable.
func Folder(dir string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		files = append(files, File{Name: filepath.ToSlash(relative), Data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading folder %s: %w", dir, err)
	}
	return files, nil
}

func sorted(files []File) []File {
	return slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
}

// parents returns the folders of a file, the outermost first.
func parents(name string) []string {
	var folders []string
	for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
		folders = append(folders, folder)
	}
	slices.Reverse(folders)
	return folders
}
