package logging

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"gnuthought.com/efs-stunnel/test/support/loggingtest"
)

// blockedWriter blocks until unblock is closed.
type blockedWriter struct {
	loggingtest.Buffer
	unblock chan struct{}
}

func (s *blockedWriter) Write(p []byte) (int, error) {
	<-s.unblock
	return s.Buffer.Write(p)
}

func TestLossyNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &blockedWriter{unblock: make(chan struct{})}
		l := NewLossy(below)
		const lines = 3 * lossyLines
		for i := range lines {
			if _, err := fmt.Fprintf(l, "line %d\n", i); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				synctest.Wait() // the first line has left the buffer, so that the number of dropped lines is exact
			}
		}
		close(below.unblock)
		l.Close()
		text := below.String()
		if got, want := strings.Count(text, "line "), lossyLines+1; got != want {
			t.Errorf("got %d lines, want %d", got, want)
		}
		if want := fmt.Sprintf("%d log lines were dropped", lines-lossyLines-1); !strings.Contains(text, want) {
			t.Errorf("got log %q, want it to contain %q", text, want)
		}
	})
}

func TestLossyCloseTimesOut(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		below := &blockedWriter{unblock: make(chan struct{})}
		l := NewLossy(below)
		fmt.Fprintln(l, "not read")
		l.Close() // returns after lossyFlush; otherwise the test deadlocks
		fmt.Fprintln(l, "after Close")
		l.Close()
		close(below.unblock)
	})
}
