package authority

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

const namespace = "efs-stunnel"

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// cluster has the Services of two servers.
type cluster struct {
	*testing.T
	*fake.Clientset
	now time.Time
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"mine": "stays"}}}
	}
	return &cluster{t, fake.NewClientset(service("efs-nfs"), service("efs-nfs-2")), noon}
}

func (c *cluster) renew() error {
	return Renew(c.Context(), c, Options{
		Namespace: namespace, Servers: []string{"efs-nfs", "efs-nfs-2"}, Now: func() time.Time { return c.now }, Log: slog.New(slog.DiscardHandler),
	})
}

// renewAt renews, and returns the objects that were written.
func (c *cluster) renewAt(at time.Time) (written []string) {
	c.Helper()
	c.now = at
	c.ClearActions()
	if err := c.renew(); err != nil {
		c.Fatal(err)
	}
	for _, action := range c.Actions() {
		if action.GetVerb() != "get" {
			written = append(written, action.GetVerb()+" "+action.GetResource().Resource)
		}
	}
	return written
}

func (c *cluster) secret(name string) pair {
	c.Helper()
	secret, err := c.CoreV1().Secrets(namespace).Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return pairOf(secret)
}

func (c *cluster) annotation(server string) string {
	c.Helper()
	service, err := c.CoreV1().Services(namespace).Get(c.Context(), server, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	if service.Annotations["mine"] != "stays" {
		c.Errorf("annotations are %v", service.Annotations)
	}
	return service.Annotations[wellknown.AnnotationCACertificates]
}

// serves checks both sides of a handshake: the agents' with the Service's annotation, the server's with its Secret.
func (c *cluster) serves(server string) {
	c.Helper()
	own, client := c.secret(server+"-tls"), c.secret(wellknown.ServerClientSecret)
	c.verify(own, c.annotation(server), server+".efs-stunnel.svc", x509.ExtKeyUsageServerAuth)
	c.verify(client, string(own.authorities), "", x509.ExtKeyUsageClientAuth)
}

func (c *cluster) verify(p pair, roots, host string, usage x509.ExtKeyUsage) {
	c.Helper()
	all, err := ports.Authorities(roots)
	if err != nil {
		c.Fatal(err)
	}
	pool := x509.NewCertPool()
	for _, root := range all {
		pool.AddCert(root)
	}
	parsed, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		c.Fatal(err)
	}
	if _, err := parsed.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: c.now}); err != nil {
		c.Errorf("at %s: %v", c.now, err)
	}
}

func TestCertificatesAreMadeOnce(t *testing.T) {
	c := newCluster(t)
	want := []string{"create secrets", "patch services", "patch services", "create secrets", "create secrets", "create secrets"}
	if got := c.renewAt(noon); !slices.Equal(got, want) {
		t.Errorf("first: got %q, want %q", got, want)
	}
	c.serves("efs-nfs")
	c.serves("efs-nfs-2")
	for _, at := range []time.Time{noon, noon.Add(24 * time.Hour), noon.Add(leafLife / 2)} {
		if got := c.renewAt(at); len(got) > 0 {
			t.Errorf("at %s: got %q, want nothing", at, got)
		}
	}
}

func TestCertificatesAreRenewedInTheLastThird(t *testing.T) {
	c := newCluster(t)
	c.renewAt(noon)
	authority, before := c.secret(wellknown.ServerAuthoritySecret), c.secret("efs-nfs-tls")
	if got := c.renewAt(noon.Add(leafLife * 3 / 4)); !slices.Equal(got, []string{"update secrets", "update secrets", "update secrets"}) {
		t.Errorf("got %q, want all three of the authority's", got)
	}
	if got := c.secret(wellknown.ServerAuthoritySecret); !reflect.DeepEqual(got, authority) {
		t.Error("the authority is another one")
	}
	if got := c.secret("efs-nfs-tls"); reflect.DeepEqual(got, before) || !bytes.Equal(got.authorities, before.authorities) {
		t.Error("want another certificate of the same authority")
	}
	c.serves("efs-nfs")
}

// TestAuthorityIsReplacedWithoutAPause: whatever part of the renewal an agent or a server has, it accepts the other.
func TestAuthorityIsReplacedWithoutAPause(t *testing.T) {
	c := newCluster(t)
	c.renewAt(noon)
	for at := noon; at.Before(noon.Add(authorityLife * 3 / 4)); at = at.Add(60 * 24 * time.Hour) {
		before := map[string]pair{}
		for _, name := range []string{"efs-nfs-tls", "efs-nfs-2-tls", wellknown.ServerClientSecret} {
			before[name] = c.secret(name)
		}
		annotation := c.annotation("efs-nfs")
		c.renewAt(at)
		c.serves("efs-nfs")
		c.serves("efs-nfs-2")
		// Neither the kubelets nor the manager have noticed yet.
		c.verify(c.secret("efs-nfs-tls"), annotation, "efs-nfs.efs-stunnel.svc", x509.ExtKeyUsageServerAuth)
		c.verify(c.secret(wellknown.ServerClientSecret), string(before["efs-nfs-tls"].authorities), "", x509.ExtKeyUsageClientAuth)
		c.verify(before["efs-nfs-2-tls"], c.annotation("efs-nfs-2"), "efs-nfs-2.efs-stunnel.svc", x509.ExtKeyUsageServerAuth)
		c.verify(before[wellknown.ServerClientSecret], string(c.secret("efs-nfs-tls").authorities), "", x509.ExtKeyUsageClientAuth)
	}
	all, err := ports.Authorities(c.annotation("efs-nfs"))
	if err != nil || len(all) != 2 {
		t.Errorf("got %d authorities, %v; want the old one beside the new one", len(all), err)
	}
}

// TestAuthorityThatIsNewSignsNoRenewal: what it would sign, others do not accept yet.
func TestAuthorityThatIsNewSignsNoRenewal(t *testing.T) {
	c := newCluster(t)
	c.renewAt(noon)
	c.renewAt(noon.Add(authorityLife*2/3 - leafLife*3/4)) // the latest before both are due
	before, at := c.secret("efs-nfs-tls"), noon.Add(authorityLife*2/3+time.Hour)
	c.renewAt(at)
	if got := c.secret("efs-nfs-tls"); !bytes.Equal(got.certificate, before.certificate) || bytes.Equal(got.authorities, before.authorities) {
		t.Error("want the certificate as it was, with both authorities")
	}
	c.renewAt(at.Add(time.Minute))
	if got := c.secret("efs-nfs-tls"); !bytes.Equal(got.certificate, before.certificate) {
		t.Error("renewed a minute later, want that a day later")
	}
	c.renewAt(at.Add(24 * time.Hour))
	if got := c.secret("efs-nfs-tls"); bytes.Equal(got.certificate, before.certificate) {
		t.Error("not renewed a day later")
	}
	c.serves("efs-nfs")
}

func TestEndedAuthorityLeavesTheAnnotation(t *testing.T) {
	c := newCluster(t)
	c.renewAt(noon)
	c.renewAt(noon.Add(authorityLife * 3 / 4))
	c.renewAt(noon.Add(authorityLife + time.Hour))
	if all, err := ports.Authorities(c.annotation("efs-nfs")); err != nil || len(all) != 1 {
		t.Errorf("got %d authorities, %v; want the one that has not ended", len(all), err)
	}
	c.serves("efs-nfs")
}

func TestDeletedAuthorityIsMadeAnew(t *testing.T) {
	c := newCluster(t)
	c.renewAt(noon)
	if err := c.CoreV1().Secrets(namespace).Delete(t.Context(), wellknown.ServerAuthoritySecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.renewAt(noon.Add(time.Hour))
	c.serves("efs-nfs")
	if got := c.renewAt(noon.Add(2 * time.Hour)); len(got) > 0 {
		t.Errorf("again: got %q", got)
	}
}

func TestSecretOfOthersIsLeftAlone(t *testing.T) {
	c := newCluster(t)
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "efs-nfs-tls"}}
	if _, err := c.CoreV1().Secrets(namespace).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.ClearActions()
	if err := c.renew(); err == nil || !strings.Contains(err.Error(), "Secret efs-nfs-tls is not this program's") {
		t.Errorf("got %v", err)
	}
	for _, action := range c.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("wrote: %v", action)
		}
	}
}

func TestMissingServiceIsAnError(t *testing.T) {
	c := newCluster(t)
	if err := c.CoreV1().Services(namespace).Delete(t.Context(), "efs-nfs-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.renew(); err == nil || !strings.Contains(err.Error(), "Service efs-nfs-2") {
		t.Errorf("got %v", err)
	}
}
