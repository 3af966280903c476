package supervise

import (
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
)

// line is one line of stunnel's log.
type line struct {
	severity int    // of syslog: 3 is an error, 7 debugging
	thread   string // mainThread or, for example, the number of a connection
	text     string
}

// mainThread is the thread that starts, reloads and accepts connections.
const mainThread = "ui"

// Severities of syslog.
const (
	severityError   = 3
	severityWarning = 4
	severityNotice  = 5
	severityDebug   = 7
)

var (
	// runningLine is the format once stunnel has applied its configuration.
	runningLine = regexp.MustCompile(`^\d{4}\.\d\d\.\d\d \d\d:\d\d:\d\d LOG([0-7])\[([^\]]*)\]: (.*)$`)
	// startingLine is the format of a stunnel that exits before that.
	startingLine = regexp.MustCompile(`^\[([ .:!*])\] (.*)$`)
)

func parseLine(raw string) line {
	if found := runningLine.FindStringSubmatch(raw); found != nil {
		return line{severity: int(found[1][0] - '0'), thread: found[2], text: found[3]}
	}
	if found := startingLine.FindStringSubmatch(raw); found != nil {
		return line{severity: startingSeverity(found[1]), thread: mainThread, text: found[2]}
	}
	// Of another program: for example of the dynamic loader, when a library is missing.
	return line{severity: severityWarning, thread: mainThread, text: raw}
}

func startingSeverity(mark string) int {
	switch mark {
	case "!", "*":
		return severityError
	case ":":
		return severityWarning
	case ".":
		return severityNotice
	}
	return severityDebug
}

// level maps notices to debug: stunnel logs five of them for each connection, and probes open
// connections all the time.
func (l line) level() slog.Level {
	switch {
	case strings.Contains(l.text, "TIMEOUTclose exceeded"):
		return slog.LevelDebug // logged for every connection, as TIMEOUTclose is 0
	case l.severity <= severityError:
		return slog.LevelError
	case l.severity == severityWarning:
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
	buffer, total := make([]byte, readBytes), int64(0)
	for {
		n, err := r.Read(buffer)
		total += int64(n)
		if _, err := s.Write(buffer[:n]); err != nil {
			return total, err
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
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

// flush emits the buffered line.
func (s *splitter) flush() {
	if text := strings.TrimRight(string(s.rest), "\r "); text != "" {
		s.emit(strings.ToValidUTF8(text, "?"))
	}
	s.rest = s.rest[:0]
}
