package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
)

// unreadableFiles returns a message for each file of a specification that this process, and so
// stunnel, cannot read. stunnel's messages do not name the file, and the agent may be able to read
// it: it runs in another container.
func unreadableFiles(t spec.Tunnel) []string {
	var messages []string
	for _, file := range []struct{ option, path string }{{"CAfile", t.CAFile}, {"cert", t.Cert}, {"key", t.Key}} {
		if file.path == "" {
			continue
		}
		if err := checkReadable(file.path); err != nil {
			messages = append(messages, fmt.Sprintf("%s %s: %v", file.option, file.path, err))
		}
	}
	return messages
}

func checkReadable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no such file in the supervisor's container; mount it into supervisor and agent")
	case err == nil && !info.Mode().IsRegular():
		return errors.New("not a regular file") // opening a pipe would block
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}
