package supervise

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CheckPrefix returns an error that says what is allowed unless this can begin the names of
// tunnels' files.
func CheckPrefix(prefix string) error {
	if !filepath.IsAbs(prefix) || strings.HasSuffix(prefix, "/") {
		return errors.New("want an absolute path that ends in the beginning of a file's name")
	}
	return nil
}

// Generation names the bytes of a configuration, as the status does.
func Generation(config []byte) string {
	if config == nil {
		return ""
	}
	sum := sha256.Sum256(config)
	return hex.EncodeToString(sum[:])
}

// activeFile is what a tunnel's process reads: a copy, so that what it reads again when it wants
// to is what the supervisor last gave it, and a process that dies beside a bad file can be
// started again from the last good one.
func activeFile(prefix, name string) string { return prefix + "." + name + ".active" }

// replaceFile leaves the old file or the new one, wherever it ends. No fsync: nothing here is
// to survive the machine.
func replaceFile(name string, content []byte) error {
	fresh := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".new")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := createFile(fresh, content); err != nil {
		return err
	}
	return os.Rename(fresh, name)
}

// createFile follows no link that somebody else may have put there.
func createFile(name string, content []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

func removeFile(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
