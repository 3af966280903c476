package table

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

func authority(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(stunneltest.NewAuthority(t).File)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// serviceOf is the Service of a server; each is a minute younger than the one before.
func serviceOf(name, id, authority string, edits ...func(*corev1.Service)) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, CreationTimestamp: metav1.Time{Time: noon.Add(time.Duration(len(name)) * time.Minute)},
			Labels:      map[string]string{wellknown.LabelServer: id},
			Annotations: map[string]string{wellknown.AnnotationCACertificates: authority},
		},
		Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.7", "fd00::7"}, Ports: []corev1.ServicePort{{Port: 2049}}},
	}
	for _, edit := range edits {
		edit(service)
	}
	return service
}

func TestServersAreTargets(t *testing.T) {
	one := authority(t)
	plain := serviceOf("metrics", "", "")
	delete(plain.Labels, wellknown.LabelServer)
	f := given(tableOf(nil), func(f *fixture) {
		f.state = f.withServers(readServers([]*corev1.Service{serviceOf("efs-nfs", "nfs-1", one), serviceOf("efs-nfs-2", "nfs-2", one), plain}))
	})
	p := f.plan(options())
	if len(p.table.Targets) != 2 || len(f.noServers) > 0 {
		t.Fatalf("got %+v, refused %+v", p.table.Targets, f.noServers)
	}
	want := ports.Target{
		Name: "efs-nfs", Port: 20490, DNSName: "efs-nfs.efs-stunnel.svc", CACertificates: one, ClientCertificate: true, PinnedOnly: true,
		AddressBySubnet: map[string]netip.Addr{"service": netip.MustParseAddr("10.96.0.7")},
		IPv6BySubnet:    map[string]netip.Addr{"service": netip.MustParseAddr("fd00::7")},
	}
	if diff := cmp.Diff(want, p.table.Targets["nfs-1"], cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("target (-want +got):\n%s", diff)
	}
	for _, id := range []string{"nfs-1", "nfs-2"} {
		if c := p.snapshot.FileSystems[id]; c.Unusable != "" || c.Port == 0 || !p.snapshot.Servers[id] {
			t.Errorf("%s: got %+v, want a candidate of classes that is a server of one's own", id, c)
		}
	}
}

func TestServiceThatIsNoServerIsRefused(t *testing.T) {
	one := authority(t)
	headless := func(s *corev1.Service) { s.Spec.ClusterIPs = []string{corev1.ClusterIPNone} }
	otherPort := func(s *corev1.Service) { s.Spec.Ports[0].Port = 20490 }
	for name, tt := range map[string]struct {
		service *corev1.Service
		want    string // a part of the message
	}{
		"an id that no target may have":     {serviceOf("x", "NFS", one), "want 1 to 43 lower-case letters"},
		"the id of an EFS file system":      {serviceOf("x", "fs-0123456789abcdef0", one), "want one that does not begin with fs-"},
		"a pinned id":                       {serviceOf("x", "pinned", one), "ConfigMap efs-stunnel-pinned has a target pinned"},
		"the id of an older Service":        {serviceOf("much-younger", "good", one), "Service older, which is older, is that of server good"},
		"no cluster IP":                     {serviceOf("x", "nfs", one, headless), "that is not headless"},
		"another port":                      {serviceOf("x", "nfs", one, otherPort), "no port 2049"},
		"no authority":                      {serviceOf("x", "nfs", ""), "annotation efs-stunnel.gnuthought.com/ca-certificates: 0 certificates"},
		"something else for an authority":   {serviceOf("x", "nfs", "x"), "want certificates in PEM only"},
		"a private key beside an authority": {serviceOf("x", "nfs", one+"-----BEGIN PRIVATE KEY-----"), "something else after 1 certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			f := given(tableOf(nil), func(f *fixture) {
				f.pinned.table = &ports.Table{Targets: map[string]ports.Target{"pinned": target(20495)}}
				f.state = f.withServers(readServers([]*corev1.Service{tt.service, serviceOf("older", "good", one)}))
			})
			p := f.plan(options())
			if got := p.table.Targets; len(got) != 2 || got["good"].Name != "older" || got["pinned"].Name != "shared" {
				t.Errorf("got %+v, want the others as they are", got)
			}
			i := slices.IndexFunc(p.notices, func(n notice) bool { return n.Reason == wellknown.EventServerRefused })
			if i < 0 || !strings.Contains(p.notices[i].Message, tt.want) || p.notices[i].about != tt.service || p.notices[i].TypeOf() != status.DiscoveryWorks {
				t.Errorf("got %+v, want a condition with %q", p.notices, tt.want)
			}
		})
	}
}

// TestNoOtherServiceTakesAServersVolumes: it may lead to another disk, and the first one may be mended or created again.
func TestNoOtherServiceTakesAServersVolumes(t *testing.T) {
	one := authority(t)
	older, younger := serviceOf("old", "nfs-1", one), serviceOf("younger", "nfs-1", one)
	first := given(tableOf(nil), func(f *fixture) { f.state = f.withServers(readServers([]*corev1.Service{older})) }).plan(options()).table.Targets["nfs-1"]
	broken := serviceOf("old", "nfs-1", "x")
	restored := serviceOf("old", "nfs-1", one, func(s *corev1.Service) { s.CreationTimestamp.Time = noon.Add(time.Hour) })
	for name, services := range map[string][]*corev1.Service{
		"its own is broken":                  {broken, younger},
		"its own is deleted":                 {younger},
		"its own was restored from a backup": {younger, restored},
	} {
		t.Run(name, func(t *testing.T) {
			f := given(tableOf(map[string]ports.Target{"nfs-1": first}), func(f *fixture) { f.state = f.withServers(readServers(services)) })
			p := f.plan(options())
			if got := p.table.Targets["nfs-1"]; got.DNSName != first.DNSName || got.Port != first.Port {
				t.Errorf("got %+v, want it as it was", got)
			}
			if !slices.ContainsFunc(f.noServers, func(s server) bool {
				return s.service == younger && strings.Contains(s.err.Error(), "the Service old is that of server nfs-1")
			}) {
				t.Errorf("refused %+v", f.noServers)
			}
		})
	}
	again := given(tableOf(nil), func(f *fixture) { f.state = f.withServers(readServers([]*corev1.Service{younger})) })
	if got := again.plan(options()).table.Targets["nfs-1"].Name; got != "younger" {
		t.Errorf("once the target is deleted, the Service %q serves", got)
	}
}

// TestServerWithoutServiceStays: volumes may be on it, and its Service may come back.
func TestServerWithoutServiceStays(t *testing.T) {
	gone, other := target(20490), target(20491)
	gone.ClientCertificate, gone.PinnedOnly, gone.AddressByZone = true, true, nil
	f := given(tableOf(map[string]ports.Target{"nfs-1": gone, "fs-2": other}), func(f *fixture) {
		f.state = f.withServers(nil)
	})
	p := f.plan(options())
	if diff := cmp.Diff(gone, p.table.Targets["nfs-1"], cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("target (-before +after):\n%s", diff)
	}
	var missing []string
	for _, n := range p.notices {
		if n.Reason == wellknown.EventServerMissing {
			missing = append(missing, n.Subject.Name)
		}
	}
	if !slices.Equal(missing, []string{"nfs-1"}) {
		t.Errorf("got %q of %+v, want a condition of that one only", missing, p.notices)
	}
}

func TestServerIsASource(t *testing.T) {
	c, client := showing(t)
	one := map[string]ports.Target{"nfs-1": target(20490)}
	c.shown.Store(&plan{table: *tableOf(one), pinned: one, servers: map[string]server{"nfs-1": {}}})
	syncAll(t, c)
	if got := fileSystemOf(t, client, "nfs-1"); got.Source != v1alpha1.SourceServer || got.Port != 20490 {
		t.Errorf("got %+v", got)
	}
}
