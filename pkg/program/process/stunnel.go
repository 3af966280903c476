package process

import (
	"log/slog"
	"regexp"
	"strings"
)

var (
	// runningLine is the format once stunnel has applied its configuration.
	runningLine = regexp.MustCompile(`^\d{4}\.\d\d\.\d\d \d\d:\d\d:\d\d LOG([0-7])\[([^\]]*)\]: (.*)$`)
	// startingLine is the format of a stunnel that exits before that.
	startingLine = regexp.MustCompile(`^\[([ .:!*])\] (.*)$`)
)

// ParseStunnel parses a line of stunnel's log. The thread is "" before stunnel has one, and in lines of other
// programs: for example of the dynamic loader, when a library is missing.
func ParseStunnel(raw string) (level slog.Level, thread, text string) {
	level, text = slog.LevelWarn, raw
	if found := runningLine.FindStringSubmatch(raw); found != nil {
		level, thread, text = levelOf(found[1]), found[2], found[3]
	} else if found := startingLine.FindStringSubmatch(raw); found != nil {
		level, text = levelOf(found[1]), found[2]
	}
	// These come with every connection: TIMEOUTclose is 0, and no certificate of EFS comes with an OCSP response, which
	// stunnel 5.74 reports without requiring it.
	if strings.Contains(text, "TIMEOUTclose exceeded") || strings.Contains(text, "No OCSP stapling response received") {
		level = slog.LevelDebug
	}
	return level, thread, text
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
