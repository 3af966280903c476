package operations_test

import (
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

func TestUsageIsReadAsItWasWritten(t *testing.T) {
	tests := map[string]operations.Usage{
		"a directory":       {Path: "/team/data", Bytes: 1 << 50, Files: 12},
		"an empty one":      {Path: "/team/empty"},
		"an incomplete one": {Path: "/a b/<&>\u2028", Bytes: 1, Files: 1, Incomplete: "its time was over"},
	}
	for name, usage := range tests {
		t.Run(name, func(t *testing.T) {
			line, err := usage.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if strings.ContainsAny(string(line), "\n\r\x1b") {
				t.Errorf("%q is not one line", line)
			}
			if got, err := operations.DecodeUsage(line); err != nil || got != usage {
				t.Errorf("got %+v, error %v", got, err)
			}
		})
	}
}

func TestReasonOfIncompleteUsageIsShort(t *testing.T) {
	line, err := operations.Usage{Path: "/a", Incomplete: "\xff\x1b[2J" + strings.Repeat("x", 9000)}.Encode()
	if err != nil || len(line) > 400 || strings.Contains(string(line), "\x1b") {
		t.Errorf("%d bytes, error %v", len(line), err)
	}
}

func TestOtherLinesAreNoUsage(t *testing.T) {
	for name, line := range map[string]string{
		"empty":               "",
		"a log line":          `time=2026-01-02T03:04:05Z level=INFO msg="survey ended"`,
		"a log line in JSON":  `{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"survey ended"}`,
		"two lines":           `{"path":"/a","bytes":1,"files":1}{"path":"/b","bytes":1,"files":1}`,
		"negative bytes":      `{"path":"/a","bytes":-1,"files":1}`,
		"negative files":      `{"path":"/a","bytes":1,"files":-1}`,
		"too many bytes":      `{"path":"/a","bytes":9007199254740993,"files":1}`,
		"more than an int64":  `{"path":"/a","bytes":1e30,"files":1}`,
		"a path with dots":    `{"path":"/a/../b","bytes":1,"files":1}`,
		"the state directory": `{"path":"/.efs-stunnel/trash","bytes":1,"files":1}`,
		"a control character": `{"path":"/a\u001b[2J","bytes":1,"files":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := operations.DecodeUsage([]byte(line)); err == nil {
				t.Errorf("got %+v", got)
			}
		})
	}
}
