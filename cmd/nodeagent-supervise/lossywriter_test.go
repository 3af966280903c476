package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"gnuthought.com/efs-stunnel/pkg/logging/loggingtest"
)

// stuck takes nothing until it is told to.
type stuck struct {
	loggingtest.Buffer
	free chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.free
	return s.Buffer.Write(p)
}

func TestLossyWriterNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &stuck{free: make(chan struct{})}
		l := newLossyWriter(below)
		const lines = 3 * lossyLines
		for i := range lines {
			if _, err := fmt.Fprintf(l, "line %d\n", i); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				synctest.Wait() // the first is on its way, so that the rest counts exactly
			}
		}
		close(below.free)
		l.Close()
		text := below.String()
		if got, want := strings.Count(text, "line "), lossyLines+1; got != want {
			t.Errorf("got %d lines, want %d", got, want)
		}
		if want := fmt.Sprintf("%d log lines were dropped", lines-lossyLines-1); !strings.Contains(text, want) {
			t.Errorf("the log does not say that %s", want)
		}
	})
}

func TestLossyWriterCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		below := &stuck{free: make(chan struct{})}
		l := newLossyWriter(below)
		fmt.Fprintln(l, "nobody reads this")
		l.Close() // returns after lossyFlush, or the test hangs
		fmt.Fprintln(l, "nor this")
		l.Close()
		close(below.free)
	})
}
