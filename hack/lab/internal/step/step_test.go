package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLinesWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewPrinter(&out)
		err := p.Do(t.Context(), "building", func(_ context.Context, n *Notes) error {
			fmt.Fprintln(n, "compiling one\ncompiling two")
			<-time.After(130 * time.Second)
			n.Result("made")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Do(t.Context(), "toolbox", func(context.Context, *Notes) error { return nil })
		want := "          building …\n" +
			"  60.0 s  … building: compiling two\n" +
			" 120.0 s  … building: compiling two\n" +
			" 130.0 s  building: made\n" +
			"   0.0 s  toolbox\n"
		if out.String() != want {
			t.Errorf("got:\n%swant:\n%s", out.String(), want)
		}
	})
}

func TestLineOfATerminalShowsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewPrinter(&out)
		p.columns = func() int { return 31 }
		ends := make(chan struct{})
		go func() {
			_ = p.Do(t.Context(), "booting", func(context.Context, *Notes) error {
				<-time.After(1500 * time.Millisecond)
				return nil
			})
			close(ends)
		}()
		synctest.Wait()
		_ = p.Do(t.Context(), "building", func(_ context.Context, n *Notes) error {
			fmt.Fprintln(n, "compiling")
			<-ends
			<-time.After(time.Second)
			return nil
		})
		const line = "\r\x1b[K"
		want := []string{
			line + "1.0 s  booting | 1.0 s  buildi", // the terminal's last column stays free
			line + "   1.5 s  booting\n" + line + "1.5 s  building: compiling",
			line + "2.0 s  building: compiling",
			line + "   2.5 s  building\n",
		}
		got := out.String()
		for _, part := range want {
			_, rest, found := strings.Cut(got, part)
			if !found {
				t.Fatalf("got %q, want %q in it, and before it what was wanted", out.String(), part)
			}
			got = rest
		}
	})
}

func TestFailedStepIsPrintedAndReturnsTheError(t *testing.T) {
	var out bytes.Buffer
	boom := errors.New("boom")
	err := NewPrinter(&out).Do(t.Context(), "booting", func(context.Context, *Notes) error { return boom })
	if !errors.Is(err, boom) || !strings.HasSuffix(out.String(), "booting: FAILED\n") {
		t.Errorf("got %v and %q", err, out.String())
	}
}
