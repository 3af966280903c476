package certificates_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
)

func accessPointOnly() map[string]clientcert.Identity {
	return map[string]clientcert.Identity{accessPointTunnel: accessPointIdentity()}
}

func iamOnly() map[string]clientcert.Identity {
	return map[string]clientcert.Identity{iamTunnel: iamIdentity()}
}

func TestAccessPointsAreRenewedWithoutCredentials(t *testing.T) {
	inBubble(t, func(n *node) {
		r, _ := n.start(accessPointOnly())
		begin := time.Now()
		want := contents{FileSystem: "fs-1", AccessPoint: "fsap-1", Made: begin.UTC(), NotAfter: begin.Add(3 * time.Hour).UTC()}
		if diff := cmp.Diff(want, n.contents(r, accessPointTunnel)); diff != "" {
			t.Errorf("certificate (-want +got):\n%s", diff)
		}
		changes := n.changes.Load()
		after(54 * time.Minute)
		if made := n.contents(r, accessPointTunnel).Made; !made.Equal(begin) || n.changes.Load() != changes {
			t.Errorf("made %s after the begin, notified %d times", made.Sub(begin), n.changes.Load())
		}
		after(2 * time.Minute)
		if made := n.contents(r, accessPointTunnel).Made; !made.Equal(begin.Add(55*time.Minute)) || n.changes.Load() != changes+1 {
			t.Errorf("made %s after the begin, notified %d times; want 55 minutes and once more", made.Sub(begin), n.changes.Load())
		}
		if n.requestCount() > 0 {
			t.Error("credentials were requested, though no certificate needs them")
		}
	})
}

func TestNoTunnelNeedsACertificate(t *testing.T) {
	inBubble(t, func(n *node) {
		if err := os.Remove(n.dir.Key().Path()); err != nil {
			t.Fatal(err)
		}
		n.start(nil)
		after(time.Hour)
		if key, err := n.dir.Key().Read(); err != nil || key != nil || n.requestCount() > 0 {
			t.Errorf("got key %q, %v, and was asked for credentials %d times", key, err, n.requestCount())
		}
	})
}

// Newer credentials are there before the old ones expire, but not always ten minutes before.
func TestRenewedBeforeCredentialsExpire(t *testing.T) {
	inBubble(t, func(n *node) {
		n.setCredentials("FIRST", 30*time.Minute)
		r, _ := n.start(iamOnly())
		first := n.contents(r, iamTunnel)
		if until := r.Certificates()[iamTunnel].Until; !until.Equal(time.Now().Add(30 * time.Minute)) {
			t.Errorf("it is said to serve until %s", until)
		}
		after(25 * time.Minute) // ten minutes before the end, newer ones were looked for
		if diff := cmp.Diff(first, n.contents(r, iamTunnel)); diff != "" {
			t.Errorf("another certificate from the same credentials (-before +after):\n%s", diff)
		}
		if asked := n.requestCount(); asked < 10 || asked > 100 {
			t.Errorf("asked %d times", asked)
		}
		n.setCredentials("SECOND", time.Hour)
		after(5 * time.Second)
		if second := n.contents(r, iamTunnel); second.AccessKeyID != "SECOND" {
			t.Errorf("got %+v", second)
		}
		if got := r.Certificates()[iamTunnel]; got.Problem != "" {
			t.Errorf("got the problem %q", got.Problem)
		}
	})
}

func TestCredentialsThatDoNotExpire(t *testing.T) {
	inBubble(t, func(n *node) {
		n.setCredentials("LASTING", 0)
		r, _ := n.start(iamOnly())
		first := n.contents(r, iamTunnel)
		after(56 * time.Minute)
		if second := n.contents(r, iamTunnel); second.Made.Sub(first.Made) != 55*time.Minute || n.requestCount() != 2 {
			t.Errorf("got %+v after %+v, and was asked %d times", second, first, n.requestCount())
		}
	})
}

func TestFailedRenewalKeepsTheCertificate(t *testing.T) {
	inBubble(t, func(n *node) {
		n.setCredentials("FIRST", time.Hour)
		r, _ := n.start(iamOnly())
		first := r.Certificates()[iamTunnel]
		n.setCredentialsError("the role is gone")
		after(4 * time.Hour)
		got := r.Certificates()[iamTunnel]
		if got.Sum != first.Sum || !got.Until.Equal(first.Until) || got.Until.After(time.Now()) {
			t.Errorf("got %+v after %+v", got, first)
		}
		if got.Problem != "looking for AWS credentials: the role is gone" {
			t.Errorf("got the problem %q", got.Problem)
		}
		if asked := n.requestCount(); asked < 60 || asked > 260 {
			t.Errorf("asked %d times in 4 hours; want about once a minute", asked)
		}
		n.setCredentials("SECOND", time.Hour)
		after(time.Minute)
		if second := n.contents(r, iamTunnel); second.AccessKeyID != "SECOND" || r.Certificates()[iamTunnel].Problem != "" {
			t.Errorf("got %+v, problem %q", second, r.Certificates()[iamTunnel].Problem)
		}
	})
}

// A tunnel that waits for credentials does not delay the others.
func TestNoCredentialsAtFirst(t *testing.T) {
	inBubble(t, func(n *node) {
		r, _ := n.start(map[string]clientcert.Identity{iamTunnel: iamIdentity(), accessPointTunnel: accessPointIdentity()})
		n.contents(r, accessPointTunnel)
		if got := r.Certificates()[iamTunnel]; got.Sum != "" || !strings.Contains(got.Problem, "there are none") {
			t.Errorf("got %+v", got)
		}
		n.setCredentials("FIRST", time.Hour)
		after(2 * time.Second)
		n.contents(r, iamTunnel)
	})
}

func TestRestartKeepsCertificates(t *testing.T) {
	inBubble(t, func(n *node) {
		n.setCredentials("FIRST", time.Hour)
		both := map[string]clientcert.Identity{iamTunnel: iamIdentity(), accessPointTunnel: accessPointIdentity()}
		r, end := n.start(both)
		before := r.Certificates()
		end()
		after(20 * time.Minute)
		r, end = n.start(both)
		if diff := cmp.Diff(before, r.Certificates()); diff != "" {
			t.Errorf("a restart changes certificates (-before +after):\n%s", diff)
		}
		end()
		n.setCredentialsError("no way")
		r, end = n.start(both)
		if got := r.Certificates()[iamTunnel]; got.Sum != before[iamTunnel].Sum || got.Problem == "" {
			t.Errorf("without credentials, got %+v", got)
		}
		end()
		n.setCredentials("SECOND", time.Hour)
		r, _ = n.start(both)
		if c := n.contents(r, iamTunnel); c.AccessKeyID != "SECOND" {
			t.Errorf("got %+v: it is signed by credentials that the node may not have any more", c)
		}
	})
}

func TestUnusableFilesAreReplaced(t *testing.T) {
	inBubble(t, func(n *node) {
		_, end := n.start(accessPointOnly())
		end()
		made, err := n.dir.Certificate(accessPointTunnel).Read()
		if err != nil {
			t.Fatal(err)
		}
		instead := func(before, now string) string {
			text := strings.ReplaceAll(string(made), before, now)
			if text == string(made) {
				t.Fatalf("%q is not in the file:\n%s", before, text)
			}
			return text
		}
		for name, text := range map[string]string{
			"by a clock that was wrong": instead(`"made":"2000`, `"made":"2001`), "another's": instead("fsap-1", "fsap-2"), "nonsense": "x",
			"of another key": instead("MII", "AAA"), "without its first line": string(made[bytes.IndexByte(made, '\n')+1:]),
		} {
			after(time.Second)
			if err := n.dir.Certificate(accessPointTunnel).Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			r, end := n.start(accessPointOnly())
			if c := n.contents(r, accessPointTunnel); !c.Made.Equal(time.Now()) || c.AccessPoint != "fsap-1" {
				t.Errorf("%s: got %+v", name, c)
			}
			end()
		}
	})
}

func TestChangedIdentity(t *testing.T) {
	inBubble(t, func(n *node) {
		n.setCredentials("FIRST", time.Hour)
		r, _ := n.start(iamOnly())
		r.SetIdentities(map[string]clientcert.Identity{iamTunnel: {FileSystem: "fs-2", AccessPoint: "fsap-9"}})
		synctest.Wait()
		if c := n.contents(r, iamTunnel); c.AccessKeyID != "" || c.AccessPoint != "fsap-9" {
			t.Errorf("got %+v", c)
		}
		r.SetIdentities(nil)
		synctest.Wait()
		if got := r.Certificates(); len(got) > 0 {
			t.Errorf("got %v, though no tunnel needs one", got)
		}
	})
}

// Others use the access accessPointTunnel without IAM, and the node has no credentials.
func TestIAMWithoutCredentialsKeepsTheCertificateWithout(t *testing.T) {
	inBubble(t, func(n *node) {
		r, end := n.start(accessPointOnly())
		before := r.Certificates()[accessPointTunnel]
		iamAccessPoint := accessPointIdentity()
		iamAccessPoint.IAM, iamAccessPoint.Region = true, "us-east-1"
		withIAM := map[string]clientcert.Identity{accessPointTunnel: iamAccessPoint}
		r.SetIdentities(withIAM)
		synctest.Wait()
		got := r.Certificates()[accessPointTunnel]
		if !strings.Contains(got.Problem, "there are none") || got.Sum != before.Sum || got.Identity != accessPointIdentity() {
			t.Errorf("got %+v after %+v", got, before)
		}
		serves := func(when string) {
			t.Helper()
			if c := n.contents(r, accessPointTunnel); time.Since(c.Made) > time.Hour || c.AccessKeyID != "" {
				t.Errorf("%s: got %+v at %s", when, c, time.Now())
			}
			if got := r.Certificates()[accessPointTunnel]; got.Problem == "" || !got.Until.After(time.Now()) {
				t.Errorf("%s: got %+v at %s", when, got, time.Now())
			}
		}
		after(4 * time.Hour)
		serves("after hours")
		end()
		after(4 * time.Hour)
		r, _ = n.start(withIAM)
		after(time.Second)
		serves("after a restart")
		r.SetIdentities(accessPointOnly())
		synctest.Wait()
		if got := r.Certificates()[accessPointTunnel]; got.Problem != "" || got.Sum == "" {
			t.Errorf("IAM is not needed any more, and got %+v", got)
		}
		r.SetIdentities(withIAM)
		synctest.Wait()
		n.setCredentials("FIRST", time.Hour)
		after(time.Minute)
		if c, got := n.contents(r, accessPointTunnel), r.Certificates()[accessPointTunnel]; c.AccessKeyID != "FIRST" || got.Problem != "" || got.Identity != iamAccessPoint {
			t.Errorf("got %+v, %+v", c, got)
		}
	})
}

func TestIAMWithoutRegion(t *testing.T) {
	inBubble(t, func(n *node) {
		r, _ := n.start(map[string]clientcert.Identity{iamTunnel: {FileSystem: "fs-2", IAM: true}})
		if got := r.Certificates()[iamTunnel]; !strings.Contains(got.Problem, "region is not known") || n.requestCount() > 0 {
			t.Errorf("got %+v, and was asked for credentials %d times", got, n.requestCount())
		}
		n.setCredentials("FIRST", time.Hour)
		r.SetIdentities(iamOnly())
		synctest.Wait()
		n.contents(r, iamTunnel)
	})
}
