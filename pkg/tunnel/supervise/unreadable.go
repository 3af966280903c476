package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// unreadable says which of the files that a configuration names cannot be read by this process,
// and so by its stunnel: that one's own words name none of them. The agent, which wrote their
// names, may see them all the same, in a container of its own.
func unreadable(config []byte) []string {
	var words []string
	for line := range bytes.Lines(config) {
		option, path, _ := strings.Cut(strings.TrimSpace(string(line)), " = ")
		if !slices.Contains([]string{"CAfile", "cert", "key"}, option) {
			continue
		}
		if err := tryReading(path); err != nil {
			words = append(words, fmt.Sprintf("%s %s: %v", option, path, err))
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
