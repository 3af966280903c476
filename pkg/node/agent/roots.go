package agent

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
)

// rootsFile is the file of trusted roots, as it was last read. The zero rootsFile was never read.
type rootsFile struct {
	info fs.FileInfo // nil before the first reading
	sum  string
	err  lastError // of the latest reading
}

// read returns the SHA-256 of the file, which it reads only when that has changed. It is that of the
// last reading while the file cannot be read.
func (r *rootsFile) read(path string, log *slog.Logger) string {
	err := r.update(path)
	if r.err.isNew(err) {
		log.Warn("trusted roots cannot be read; a change of them would be missed", "err", err)
	}
	return r.sum
}

func (r *rootsFile) update(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if r.info != nil && os.SameFile(info, r.info) && info.ModTime().Equal(r.info.ModTime()) && info.Size() == r.info.Size() {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r.info, r.sum = info, fmt.Sprintf("%x", sha256.Sum256(text))
	return nil
}
