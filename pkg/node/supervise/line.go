package supervise

import (
	"io"
	"log/slog"
	"regexp"
	"strings"
)

// line is one line of stunnel's log.
type line struct {
	level  slog.Level
	thread string // mainThread or, for example, the number of a connection
	text   string
}

// mainThread is the thread that starts, reloads and accepts connections.
const mainThread = "ui"

var (
	// runningLine is the format once stunnel has applied its configuration.
	runningLine = regexp.MustCompile(`^\d{4}\.\d\d\.\d\d \d\d:\d\d:\d\d LOG([0-7])\[([^\]]*)\]: (.*)$`)
	// startingLine is the format of a stunnel that exits before that.
	startingLine = regexp.MustCompile(`^\[([ .:!*])\] (.*)$`)
)

func parseLine(raw string) line {
	// Of another program: for example of the dynamic loader, when a library is missing.
	l := line{slog.LevelWarn, mainThread, raw}
	if found := runningLine.FindStringSubmatch(raw); found != nil {
		l = line{levelOf(found[1]), found[2], found[3]}
	} else if found := startingLine.FindStringSubmatch(raw); found != nil {
		l = line{levelOf(found[1]), mainThread, found[2]}
	}
	if isUsual(l.text) {
		l.level = slog.LevelDebug
	}
	return l
}

// isUsual says of an error that stunnel logs for every connection that it means nothing: TIMEOUTclose is 0, and
// no certificate of EFS comes with an OCSP response, which stunnel 5.74 reports without requiring it.
func isUsual(text string) bool {
	return strings.Contains(text, "TIMEOUTclose exceeded") || strings.Contains(text, "No OCSP stapling response received")
}

// levelOf maps a severity of syslog, or the mark that stands for it in startingLine. Notices are
// debug: stunnel logs five of them for each connection, and probes open connections all the time.
func levelOf(severity string) slog.Level {
	switch severity {
	case "0", "1", "2", "3", "!", "*":
		return slog.LevelError
	case "4", ":":
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// maxLineBytes bounds a line; the rest of a longer one is dropped.
const maxLineBytes = 1024

// splitter splits the output of a process into lines. It is not safe for concurrent use.
type splitter struct {
	rest []byte
	emit func(string)
}

// readBytes is the size of the read buffer of a process. With io.Copy's default of 32 KiB, buffers
// would be most of the supervisor's memory.
const readBytes = 2048

// ReadFrom implements io.ReaderFrom, which keeps io.Copy from allocating its own buffer.
func (s *splitter) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{s}, r, make([]byte, readBytes))
}

// Write never fails.
func (s *splitter) Write(p []byte) (int, error) {
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

func (s *splitter) flush() {
	if text := strings.TrimRight(string(s.rest), "\r "); text != "" {
		s.emit(strings.ToValidUTF8(text, "?"))
	}
	s.rest = s.rest[:0]
}
