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
	thread   string // mainThread, the number of a connection, or another
	text     string
}

// mainThread starts, reloads and accepts.
const mainThread = "ui"

// Severities of syslog.
const (
	severityError   = 3
	severityWarning = 4
	severityNotice  = 5
	severityDebug   = 7
)

var (
	// runningLine is how stunnel writes once its configuration is in force.
	runningLine = regexp.MustCompile(`^\d{4}\.\d\d\.\d\d \d\d:\d\d:\d\d LOG([0-7])\[([^\]]*)\]: (.*)$`)
	// startingLine is how it writes when it ends before.
	startingLine = regexp.MustCompile(`^\[([ .:!*])\] (.*)$`)
)

func parseLine(raw string) line {
	if found := runningLine.FindStringSubmatch(raw); found != nil {
		return line{severity: int(found[1][0] - '0'), thread: found[2], text: found[3]}
	}
	if found := startingLine.FindStringSubmatch(raw); found != nil {
		return line{severity: startingSeverity(found[1]), thread: mainThread, text: found[2]}
	}
	// The loader's words, for example, when a library is missing.
	return line{severity: severityNotice, thread: mainThread, text: raw}
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

// level makes less of notices than stunnel does: it has five for every connection, and probes
// make connections all the time.
func (l line) level() slog.Level {
	switch {
	case strings.Contains(l.text, "TIMEOUTclose exceeded"):
		return slog.LevelDebug // every connection ends so, because we have it wait 0 s
	case l.severity <= severityError:
		return slog.LevelError
	case l.severity == severityWarning:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// mostLineBytes bounds what is kept of a line.
const mostLineBytes = 1024

// splitter makes lines of what a process writes. It is an io.Writer for one goroutine.
type splitter struct {
	rest []byte
	emit func(string)
}

// readBytes is the buffer of one process. io.Copy's own would be most of the memory of a
// supervisor with many.
const readBytes = 2048

// ReadFrom takes everything there is.
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

// Write never fails: the process must not learn what became of its log.
func (s *splitter) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case b == '\n':
			s.flush()
		case len(s.rest) < mostLineBytes:
			s.rest = append(s.rest, b)
		}
	}
	return len(p), nil
}

// flush emits what has no line break yet.
func (s *splitter) flush() {
	if text := strings.TrimRight(string(s.rest), "\r "); text != "" {
		s.emit(strings.ToValidUTF8(text, "?"))
	}
	s.rest = s.rest[:0]
}
