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

func TestLongStepPrintsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		err := NewPrinter(&out).Do(t.Context(), "building", func(_ context.Context, n *Notes) error {
			fmt.Fprintln(n, "compiling one\ncompiling two")
			<-time.After(11 * time.Second)
			n.Result("from the cache")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := "   5.0 s  … building: compiling two\n" +
			"  10.0 s  … building: compiling two\n" +
			"  11.0 s  building: from the cache\n"
		if out.String() != want {
			t.Errorf("got:\n%swant:\n%s", out.String(), want)
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
