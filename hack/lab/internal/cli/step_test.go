package cli

import (
	"bytes"
	"strings"
	"testing"
)

// What a step's program prints is shown if it fails, and only then.
func TestStepShowsTheOutputOfAFailure(t *testing.T) {
	for _, fails := range []bool{false, true} {
		code := "0"
		if fails {
			code = "3"
		}
		var stdout, stderr bytes.Buffer
		err := Run(t.Context(), []string{"step", "images", "--", "sh", "-c", "echo first; echo last; exit " + code}, &stdout, &stderr)
		if (err != nil) != fails || strings.Contains(stderr.String(), "first") != fails {
			t.Errorf("exit code %s: %v, and %q", code, err, &stderr)
		}
		if !strings.Contains(stdout.String(), "images") {
			t.Errorf("stdout: %q", &stdout)
		}
	}
}
