package debian

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Root finds files in unpacked packages.
type Root []Package

// File is a file of a package.
type File struct {
	Path       string // as a program opens it
	Link       string // of a symbolic link; "" for a regular file
	Data       []byte
	Executable bool // as in the package, where most libraries are not
	Package    Package
}

// folders returns the folders in which the loader of a Debian without a cache finds libraries, and those in which
// NFS-Ganesha finds its own.
func folders(triplet string) []string {
	return []string{"/lib/" + triplet, "/usr/lib/" + triplet, "/lib", "/usr/lib", "/usr/lib/ganesha", "/usr/lib/" + triplet + "/ganesha"}
}

// Triplet returns the name of an architecture in paths.
func Triplet(architecture string) (string, error) {
	switch architecture {
	case "amd64":
		return "x86_64-linux-gnu", nil
	case "arm64":
		return "aarch64-linux-gnu", nil
	}
	return "", fmt.Errorf("architecture %s: want amd64 or arm64", architecture)
}

// Read returns a file, or the one that a link leads to.
func (r Root) Read(name string) (File, error) {
	found := name
	for range 8 {
		p, inside, info, err := r.find(found)
		if err != nil {
			return File{}, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			data, err := os.ReadFile(filepath.Join(p.Folder, inside))
			return File{Path: name, Data: data, Executable: info.Mode()&0o111 != 0, Package: p}, err
		}
		target, err := os.Readlink(filepath.Join(p.Folder, inside))
		if err != nil {
			return File{}, fmt.Errorf("reading %s: %w", name, err)
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(inside), target)
		}
		found = target
	}
	return File{}, fmt.Errorf("reading %s: more than 8 links", name)
}

// find returns the package of a file and its path there, which Debian 13 has below /usr for what programs
// open in /lib.
func (r Root) find(name string) (Package, string, fs.FileInfo, error) {
	for _, candidate := range []string{name, "/usr" + name} {
		for _, p := range r {
			if info, err := os.Lstat(filepath.Join(p.Folder, candidate)); err == nil && !info.IsDir() {
				return p, candidate, info, nil
			}
		}
	}
	return Package{}, "", nil, fmt.Errorf("reading %s: %w in the packages", name, fs.ErrNotExist)
}

// Program returns a program with its loader and the libraries that it and they need, and further ones that
// are loaded later.
func (r Root) Program(name, triplet string, further ...string) ([]File, error) {
	program, err := r.Read(name)
	if err != nil {
		return nil, err
	}
	loader, err := interpreter(program)
	if err != nil {
		return nil, err
	}
	files, known := []File{program}, []string{path.Base(loader)}
	for next := 0; next < len(files); next++ { // each library may add others
		needed, err := libraries(files[next])
		if err != nil {
			return nil, err
		}
		for _, library := range append(needed, further...) {
			if slices.Contains(known, library) {
				continue
			}
			known = append(known, library)
			file, err := r.library(library, triplet)
			if err != nil {
				return nil, fmt.Errorf("%s needs %s: %w", files[next].Path, library, err)
			}
			files = append(files, file)
		}
		further = nil
	}
	file, err := r.Read(loader)
	if err != nil {
		return nil, err
	}
	return append(files, file), nil
}

func (r Root) library(name, triplet string) (File, error) {
	for _, folder := range folders(triplet) {
		file, err := r.Read(path.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return file, err
	}
	return File{}, fmt.Errorf("in none of the folders %s", strings.Join(folders(triplet), ", "))
}

func libraries(f File) ([]string, error) {
	object, err := elf.NewFile(bytes.NewReader(f.Data))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.Path, err)
	}
	return object.ImportedLibraries()
}

// interpreter returns the path of a program's loader.
func interpreter(f File) (string, error) {
	object, err := elf.NewFile(bytes.NewReader(f.Data))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", f.Path, err)
	}
	section := object.Section(".interp")
	if section == nil {
		return "", fmt.Errorf("reading %s: it has no loader", f.Path)
	}
	data, err := section.Data()
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", f.Path, err)
	}
	return strings.TrimRight(string(data), "\x00"), nil
}

// Names returns the paths of a folder's files with a suffix, sorted.
func (r Root) Names(folder, suffix string) ([]string, error) {
	var names []string
	for _, p := range r {
		found, err := filepath.Glob(filepath.Join(p.Folder, folder, "*"+suffix))
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", folder, err)
		}
		for _, name := range found {
			names = append(names, strings.TrimPrefix(name, p.Folder))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("listing %s: no package has a file *%s there", folder, suffix)
	}
	slices.Sort(names)
	return names, nil
}
