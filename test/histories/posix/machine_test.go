package posix

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// machine does the same to a directory and to a local one as the reference.
type machine struct{ tested, reference string }

// TestRandomOperationsHaveTheSameResults on both: the same error of each operation, and the same tree after it.
func TestRandomOperationsHaveTheSameResults(t *testing.T) {
	tested, reference := directory(t), t.TempDir()
	count := 0
	rapid.Check(t, func(t *rapid.T) {
		count++
		m := machine{filepath.Join(tested, fmt.Sprint(count)), filepath.Join(reference, fmt.Sprint(count))}
		for _, dir := range []string{m.tested, m.reference} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Repeat(m.actions())
	})
}

// names are few, so that operations meet each other.
func names() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"a", "b", "c", "a/a", "a/b", "b/a", "a/a/a"})
}

// actions are operations with a name or two, and "" checks the trees after each.
func (m machine) actions() map[string]func(*rapid.T) {
	one := func(do func(t *rapid.T, path string) func(dir string) error) func(*rapid.T) {
		return func(t *rapid.T) { m.both(t, do(t, names().Draw(t, "name"))) }
	}
	two := func(do func(from, to string) error) func(*rapid.T) {
		return func(t *rapid.T) {
			from, to := names().Draw(t, "from"), names().Draw(t, "to")
			m.both(t, func(dir string) error { return do(filepath.Join(dir, from), filepath.Join(dir, to)) })
		}
	}
	simple := func(do func(path string) error) func(*rapid.T) {
		return one(func(_ *rapid.T, name string) func(string) error {
			return func(dir string) error { return do(filepath.Join(dir, name)) }
		})
	}
	return map[string]func(*rapid.T){
		"":        m.compare,
		"mkdir":   simple(func(path string) error { return os.Mkdir(path, 0o755) }),
		"rmdir":   simple(syscall.Rmdir),
		"unlink":  simple(syscall.Unlink),
		"rename":  two(syscall.Rename),
		"link":    two(syscall.Link),
		"symlink": two(func(from, to string) error { return os.Symlink(filepath.Base(from), to) }),
		"create": simple(func(path string) error {
			file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o644)
			if err != nil {
				return err
			}
			return file.Close()
		}),
		"truncate": one(func(t *rapid.T, name string) func(string) error {
			size := rapid.Int64Range(0, 20_000).Draw(t, "size")
			return func(dir string) error { return os.Truncate(filepath.Join(dir, name), size) }
		}),
		"write": one(func(t *rapid.T, name string) func(string) error {
			offset := rapid.Int64Range(0, 10_000).Draw(t, "offset")
			data := rapid.SliceOfN(rapid.Byte(), 1, 5000).Draw(t, "data")
			return func(dir string) error { return writeAt(filepath.Join(dir, name), offset, data) }
		}),
		"append": one(func(t *rapid.T, name string) func(string) error {
			data := rapid.SliceOfN(rapid.Byte(), 1, 5000).Draw(t, "data")
			return func(dir string) error { return appendTo(filepath.Join(dir, name), data) }
		}),
	}
}

func writeAt(path string, offset int64, data []byte) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(data, offset)
	return err
}

func appendTo(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(data)
	return err
}

func (m machine) both(t *rapid.T, do func(dir string) error) {
	got, want := do(m.tested), do(m.reference)
	if errnoOf(got) != errnoOf(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func (m machine) compare(t *rapid.T) {
	got, want := tree(t, m.tested), tree(t, m.reference)
	for path, entry := range want {
		if got[path] != entry {
			t.Errorf("%s is %.100q, want %.100q", path, got[path], entry)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d entries, want %d", len(got), len(want))
	}
}

// tree returns type, links and content of all below a directory.
func tree(t *rapid.T, dir string) map[string]string {
	entries := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		entries[path[len(dir):]], err = describe(path, entry)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return entries
}

func describe(path string, entry fs.DirEntry) (string, error) {
	var stat syscall.Stat_t
	switch err := syscall.Lstat(path, &stat); {
	case err != nil:
		return "", err
	case entry.IsDir():
		return fmt.Sprintf("directory %o", stat.Mode), nil // its links are the file system's own matter
	case entry.Type() == fs.ModeSymlink:
		target, err := os.Readlink(path)
		return "link to " + target, err
	}
	content, err := os.ReadFile(path)
	return fmt.Sprintf("%o, %d links, %d bytes: %s", stat.Mode, stat.Nlink, stat.Size, content), err
}
