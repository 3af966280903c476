package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestProgressIsShownAfterTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out)
		p.step("one")
		p.step("two")
		pass(t, quiet-time.Millisecond)
		p.mu.Lock() // as the timer that writes has it
		early := out.String()
		p.mu.Unlock()
		if early != "" {
			t.Errorf("too early: %q", early)
		}
		pass(t, time.Millisecond)
		p.step("three")
		p.stop()
		p.step("four")
		if want := "two …\nthree …\n"; out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

func TestProgressOfSomethingFastIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out)
		p.step("one")
		p.stop()
		pass(t, time.Minute)
		if out.Len() > 0 {
			t.Errorf("%q", out.String())
		}
	})
}

// TestSlowClusterIsReported: a user without a word does not know whether the plugin hangs.
func TestSlowClusterIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, args := range [][]string{{"status"}, {"doctor"}, {"usage"}} {
			client := fake.NewClientset()
			client.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
				<-time.After(3 * time.Second)
				return false, nil, nil
			})
			if got := invoke(t, client, args...); got.stderr != "reading objects …\n" {
				t.Errorf("%s: %+v", args[0], got)
			}
		}
	})
}

// pass lets the time of the test pass.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	<-time.After(d)
	synctest.Wait()
}
