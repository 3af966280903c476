package certificates_test

import (
	"encoding/pem"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/clientcert"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
)

func onlyPoint() map[string]routing.Identity {
	return map[string]routing.Identity{point: pointIdentity()}
}

func onlySigned() map[string]routing.Identity {
	return map[string]routing.Identity{signed: signedIdentity()}
}

func TestAccessPointsAreRenewedWithoutCredentials(t *testing.T) {
	inBubble(t, func(n *node) {
		k, _ := n.start(onlyPoint())
		begin := time.Now()
		want := clientcert.Contents{FileSystem: "fs-1", AccessPoint: "fsap-1", Made: begin.UTC(), NotAfter: begin.Add(3 * time.Hour).UTC()}
		if diff := cmp.Diff(want, n.contents(k, point)); diff != "" {
			t.Errorf("certificate (-want +got):\n%s", diff)
		}
		news := n.news.Load()
		after(54 * time.Minute)
		if made := n.contents(k, point).Made; !made.Equal(begin) || n.news.Load() != news {
			t.Errorf("made %s after the begin, told %d times", made.Sub(begin), n.news.Load())
		}
		after(2 * time.Minute)
		if made := n.contents(k, point).Made; !made.Equal(begin.Add(55*time.Minute)) || n.news.Load() != news+1 {
			t.Errorf("made %s after the begin, told %d times; want 55 minutes and once more", made.Sub(begin), n.news.Load())
		}
		if n.timesAsked() > 0 {
			t.Error("credentials were looked for, though nobody needs them")
		}
	})
}

func TestNothingWantedNothingMade(t *testing.T) {
	inBubble(t, func(n *node) {
		if err := os.Remove(n.dir.KeyFile()); err != nil {
			t.Fatal(err)
		}
		n.start(nil)
		after(time.Hour)
		if key, err := n.dir.Key(); err != nil || key != nil || n.timesAsked() > 0 {
			t.Errorf("got key %q, %v, and was asked for credentials %d times", key, err, n.timesAsked())
		}
	})
}

// Newer credentials are there before the old ones expire, but not always in time.
func TestRenewedBeforeCredentialsExpire(t *testing.T) {
	inBubble(t, func(n *node) {
		n.has("FIRST", 30*time.Minute)
		k, _ := n.start(onlySigned())
		first := n.contents(k, signed)
		if until := k.Held()[signed].Until; !until.Equal(time.Now().Add(30 * time.Minute)) {
			t.Errorf("it is said to serve until %s", until)
		}
		after(25 * time.Minute) // ten minutes before the end, newer ones were looked for
		if diff := cmp.Diff(first, n.contents(k, signed)); diff != "" {
			t.Errorf("another certificate from the same credentials (-before +after):\n%s", diff)
		}
		if asked := n.timesAsked(); asked < 10 || asked > 100 {
			t.Errorf("asked %d times", asked)
		}
		n.has("SECOND", time.Hour)
		after(5 * time.Second)
		if second := n.contents(k, signed); second.AccessKeyID != "SECOND" {
			t.Errorf("got %+v", second)
		}
		if held := k.Held()[signed]; held.Problem != "" {
			t.Errorf("got the problem %q", held.Problem)
		}
	})
}

func TestLastingCredentials(t *testing.T) {
	inBubble(t, func(n *node) {
		n.has("LASTING", 0)
		k, _ := n.start(onlySigned())
		first := n.contents(k, signed)
		after(56 * time.Minute)
		if second := n.contents(k, signed); second.Made.Sub(first.Made) != 55*time.Minute || n.timesAsked() != 2 {
			t.Errorf("got %+v after %+v, and was asked %d times", second, first, n.timesAsked())
		}
	})
}

func TestFailureKeepsWhatThereIs(t *testing.T) {
	inBubble(t, func(n *node) {
		n.has("FIRST", time.Hour)
		k, _ := n.start(onlySigned())
		first := k.Held()[signed]
		n.hasNone("the role is gone")
		after(4 * time.Hour)
		held := k.Held()[signed]
		if held.Sum != first.Sum || !held.Until.Equal(first.Until) || held.Until.After(time.Now()) {
			t.Errorf("got %+v after %+v", held, first)
		}
		if held.Problem != "looking for AWS credentials: the role is gone" {
			t.Errorf("got the problem %q", held.Problem)
		}
		if asked := n.timesAsked(); asked < 60 || asked > 260 {
			t.Errorf("asked %d times in 4 hours; want about once a minute", asked)
		}
		n.has("SECOND", time.Hour)
		after(time.Minute)
		if second := n.contents(k, signed); second.AccessKeyID != "SECOND" || k.Held()[signed].Problem != "" {
			t.Errorf("got %+v, problem %q", second, k.Held()[signed].Problem)
		}
	})
}

// Whoever waits for credentials keeps nobody else waiting.
func TestNoCredentialsAtFirst(t *testing.T) {
	inBubble(t, func(n *node) {
		k, _ := n.start(map[string]routing.Identity{signed: signedIdentity(), point: pointIdentity()})
		n.contents(k, point)
		if held := k.Held()[signed]; held.Sum != "" || !strings.Contains(held.Problem, "there are none") {
			t.Errorf("got %+v", held)
		}
		n.has("FIRST", time.Hour)
		after(2 * time.Second)
		n.contents(k, signed)
	})
}

func TestRestartMakesNothingAnew(t *testing.T) {
	inBubble(t, func(n *node) {
		n.has("FIRST", time.Hour)
		both := map[string]routing.Identity{signed: signedIdentity(), point: pointIdentity()}
		k, end := n.start(both)
		before := k.Held()
		end()
		after(20 * time.Minute)
		k, end = n.start(both)
		if diff := cmp.Diff(before, k.Held()); diff != "" {
			t.Errorf("a restart changes certificates (-before +after):\n%s", diff)
		}
		end()
		n.hasNone("no way")
		k, end = n.start(both)
		if held := k.Held()[signed]; held.Sum != before[signed].Sum || held.Problem == "" {
			t.Errorf("without credentials, got %+v", held)
		}
		end()
		n.has("SECOND", time.Hour)
		k, _ = n.start(both)
		if c := n.contents(k, signed); c.AccessKeyID != "SECOND" {
			t.Errorf("got %+v: it is signed by credentials that the node may not have any more", c)
		}
	})
}

func TestFilesOfNoUse(t *testing.T) {
	inBubble(t, func(n *node) {
		future, err := clientcert.Make(n.key, clientcert.Request{
			CommonName: "node-1", FileSystem: "fs-1", AccessPoint: "fsap-1", Now: time.Now().Add(2 * time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		other, err := clientcert.Make(n.key, clientcert.Request{CommonName: "node-1", FileSystem: "fs-1", AccessPoint: "fsap-2", Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		for name, der := range map[string][]byte{"by a clock that was wrong": future, "another's": other, "nonsense": []byte("x")} {
			if err := n.dir.WriteCertificate(point, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
				t.Fatal(err)
			}
			k, end := n.start(onlyPoint())
			if c := n.contents(k, point); !c.Made.Equal(time.Now()) || c.AccessPoint != "fsap-1" {
				t.Errorf("%s: got %+v", name, c)
			}
			end()
		}
	})
}

func TestChangedIdentity(t *testing.T) {
	inBubble(t, func(n *node) {
		n.has("FIRST", time.Hour)
		k, _ := n.start(onlySigned())
		k.Want(map[string]routing.Identity{signed: {FileSystem: "fs-2", AccessPoint: "fsap-9"}})
		synctest.Wait()
		if c := n.contents(k, signed); c.AccessKeyID != "" || c.AccessPoint != "fsap-9" {
			t.Errorf("got %+v", c)
		}
		k.Want(nil)
		synctest.Wait()
		if held := k.Held(); len(held) > 0 {
			t.Errorf("got %v, though nothing is wanted", held)
		}
	})
}

// Others use the access point without IAM, and the node has no credentials.
func TestIAMWithoutCredentialsKeepsWhatWasShown(t *testing.T) {
	inBubble(t, func(n *node) {
		k, end := n.start(onlyPoint())
		before := k.Held()[point]
		signedPoint := pointIdentity()
		signedPoint.IAM, signedPoint.Region = true, "us-east-1"
		turned := map[string]routing.Identity{point: signedPoint}
		k.Want(turned)
		synctest.Wait()
		held := k.Held()[point]
		if !strings.Contains(held.Problem, "there are none") || held.Sum != before.Sum || held.Identity != pointIdentity() {
			t.Errorf("got %+v after %+v", held, before)
		}
		serves := func(when string) {
			t.Helper()
			if c := n.contents(k, point); time.Since(c.Made) > time.Hour || c.AccessKeyID != "" {
				t.Errorf("%s: got %+v at %s", when, c, time.Now())
			}
			if held := k.Held()[point]; held.Problem == "" || !held.Until.After(time.Now()) {
				t.Errorf("%s: got %+v at %s", when, held, time.Now())
			}
		}
		after(4 * time.Hour)
		serves("after hours")
		end()
		after(4 * time.Hour)
		k, _ = n.start(turned)
		after(time.Second)
		serves("after a restart")
		k.Want(onlyPoint())
		synctest.Wait()
		if held := k.Held()[point]; held.Problem != "" || held.Sum == "" {
			t.Errorf("nobody wants IAM any more, and it says %+v", held)
		}
		k.Want(turned)
		synctest.Wait()
		n.has("FIRST", time.Hour)
		after(time.Minute)
		if c, held := n.contents(k, point), k.Held()[point]; c.AccessKeyID != "FIRST" || held.Problem != "" || held.Identity != signedPoint {
			t.Errorf("got %+v, %+v", c, held)
		}
	})
}

func TestIAMWithoutRegion(t *testing.T) {
	inBubble(t, func(n *node) {
		k, _ := n.start(map[string]routing.Identity{signed: {FileSystem: "fs-2", IAM: true}})
		if held := k.Held()[signed]; !strings.Contains(held.Problem, "region is not known") || n.timesAsked() > 0 {
			t.Errorf("got %+v, and was asked for credentials %d times", held, n.timesAsked())
		}
		n.has("FIRST", time.Hour)
		k.Want(onlySigned())
		synctest.Wait()
		n.contents(k, signed)
	})
}
