package process

import (
	"io"
	"strings"
)

// maxLineBytes bounds a line; the rest of a longer one is dropped.
const maxLineBytes = 1024

// lines splits the output of a process into lines. It is not safe for concurrent use.
type lines struct {
	emit func(string) // is called for each line that is not empty
	rest []byte
}

// ReadFrom keeps io.Copy from allocating a buffer of 32 KiB, which would be most of a supervisor's memory.
func (s *lines) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{s}, r, make([]byte, 2048))
}

// Write never fails.
func (s *lines) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case b == '\n':
			s.flush()
		case len(s.rest) < maxLineBytes:
			s.rest = append(s.rest, b)
		}
	}
	return len(p), nil
}

// flush emits what has come since the last line end.
func (s *lines) flush() {
	if text := strings.TrimRight(string(s.rest), "\r "); text != "" {
		s.emit(strings.ToValidUTF8(text, "?"))
	}
	s.rest = s.rest[:0]
}
