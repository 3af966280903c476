package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
)

// unreadable says which of the files that a specification names cannot be read by this process,
// and so by its stunnel: that one's own words name none of them. The agent, which wrote their
// names, may see them all the same, in a container of its own.
func unreadable(t spec.Tunnel) []string {
	var words []string
	for _, file := range []struct{ option, path string }{{"CAfile", t.CAFile}, {"cert", t.Cert}, {"key", t.Key}} {
		if file.path == "" {
			continue
		}
		if err := tryReading(file.path); err != nil {
			words = append(words, fmt.Sprintf("%s %s: %v", file.option, file.path, err))
		}
	}
	return words
}

func tryReading(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errNotMounted
	}
	if err == nil && !info.Mode().IsRegular() {
		return errNoFile // and reading a pipe would not end
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}

var (
	errNotMounted = errors.New("no such file in the supervisor's container; mount it into supervisor and agent")
	errNoFile     = errors.New("it is no file")
)
