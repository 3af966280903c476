package main

import (
	"bytes"
	"io"
	"os"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
)

// colorsOf colors what is written to a terminal, unless the user's environment says that it has no colors.
func colorsOf(out io.Writer) io.Writer {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return out
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return out
	}
	return colored{out}
}

// colored colors the levels at the beginning of lines. Objects have no control over it: their texts never
// begin a line with such a word.
type colored struct{ out io.Writer }

const noColor = "\x1b[0m"

func colors() map[string]string {
	return map[string]string{
		levelWord(inspect.Problem): "\x1b[1;31m", // bold red
		levelWord(inspect.Unknown): "\x1b[1;33m", // bold yellow
		levelWord(inspect.Note):    "\x1b[1;36m", // bold cyan
	}
}

// levelWord returns the first word of a result in reports.
func levelWord(level inspect.Level) string { return strings.ToUpper(string(level)) }

// Write expects whole reports.
func (c colored) Write(text []byte) (int, error) {
	var painted bytes.Buffer
	for line := range bytes.Lines(text) {
		word, rest, _ := bytes.Cut(line, []byte(" "))
		if color, ok := colors()[string(word)]; ok {
			painted.WriteString(color + string(word) + noColor + " ")
			line = rest
		}
		painted.Write(line)
	}
	if _, err := c.out.Write(painted.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}
