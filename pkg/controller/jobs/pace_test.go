package jobs

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p paces
		for n := range batchesAtOnce {
			if wait := p.wait("fs-1"); wait != 0 {
				t.Errorf("batch %d waits for %s", n, wait)
			}
		}
		wait := p.wait("fs-1")
		if wait <= 0 || wait > time.Second/batchesPerSecond || p.wait("fs-1") != wait {
			t.Errorf("the next one waits for %s", wait)
		}
		if p.wait("fs-2") != 0 {
			t.Error("another file system waits, too")
		}
		<-time.After(wait)
		if p.wait("fs-1") != 0 {
			t.Error("it waits for longer")
		}
	})
}
