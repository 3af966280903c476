//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/authority"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// createServer creates the Service of a server, without certificates.
func (f *fixture) createServer(name, id string) *corev1.Service {
	f.Helper()
	service, err := f.Client.CoreV1().Services(f.Namespace).Create(f.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wellknown.LabelServer: id}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "nfs", Port: 2049}}},
	}, metav1.CreateOptions{})
	f.check(err)
	return service
}

// renewCertificates renews those of servers as the program does at a time, with a client for the apiserver.
func (f *fixture) renewCertificates(client kubernetes.Interface, at time.Time, servers ...string) error {
	return authority.Renew(f.Context(), client, authority.Options{
		Namespace: f.Namespace, Servers: servers, Now: func() time.Time { return at }, Log: slog.New(slog.NewTextHandler(f.Output(), nil)),
	})
}

// waitForTarget waits until the table has a target as it should be.
func (f *fixture) waitForTarget(id string, wrong func(ports.Target) error) (target ports.Target) {
	f.Helper()
	f.Eventually("the table has "+id, func(ctx context.Context) error {
		table, err := f.Table(ctx)
		if err != nil {
			return err
		}
		var ok bool
		if target, ok = table.Targets[id]; !ok {
			return errors.New("no such target")
		}
		return wrong(target)
	})
	return target
}

func atAddressOf(service *corev1.Service) func(ports.Target) error {
	return func(t ports.Target) error {
		if got := t.AddressBySubnet["service"]; got.String() != service.Spec.ClusterIP {
			return fmt.Errorf("its address is %s, want %s", got, service.Spec.ClusterIP)
		}
		return nil
	}
}

// as returns the configuration of clients with a service account.
func (f *fixture) as(account string) *rest.Config {
	config := rest.CopyConfig(f.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + f.Namespace + ":" + account}
	return config
}

// newServerFixture has a manager with the rights of its component.
func newServerFixture(t *testing.T, before ...func(*testenv.Env)) *fixture {
	t.Helper()
	f := newFixture(t)
	for _, edit := range before {
		edit(f.Env)
	}
	f.grant("../../deploy/kustomize/base/manager-rbac.yaml")
	f.grant("../../deploy/kustomize/components/nfs-server/rbac.yaml")
	administrator := f.Config
	f.Config = f.as(wellknown.ManagerServiceAccount)
	f.startManager(nil, func(o *loops.Options) { o.Servers = true })
	f.Config = administrator
	return f
}

// TestServersAreTargets: two of them, which claims choose by id or by auto, beside a file system of EFS.
func TestServersAreTargets(t *testing.T) {
	f := newServerFixture(t)
	first, second := f.Named("nfs-a"), f.Named("nfs-b")
	services := map[string]*corev1.Service{first: f.createServer("one", first), second: f.createServer("two", second)}
	f.check(f.renewCertificates(f.Client, time.Now(), "one", "two"))
	given := map[int]string{}
	for id, service := range services {
		target := f.waitForTarget(id, atAddressOf(service))
		if want := service.Name + "." + f.Namespace + ".svc"; target.DNSName != want || !target.ClientCertificate || given[target.Port] != "" {
			t.Errorf("%s: got %+v beside the ports %v, want the name %s", id, target, given, want)
		}
		given[target.Port] = id
		f.WaitForRootClaim(id)
		f.waitForEvent(f.createClaimOn(id, "on-"+service.Name), "Provisioning", "Job efs-mount-"+id)
	}
	spread := f.NewClass("spread", map[string]string{"default_file_system_id": "auto"})
	anywhere := f.NewClaim("anywhere", spread.Name)
	f.Eventually("a Job is to make its directory", func(ctx context.Context) error {
		// A server's Job does not start, as no server runs here: what waits behind it is told why.
		events := f.managerEvents(ctx, anywhere, "Provisioning", "ProvisioningFailed")
		if !slices.ContainsFunc(events, func(event corev1.Event) bool { return strings.Contains(event.Message, "Job efs-mount-") }) {
			return fmt.Errorf("it has %d: %q", len(events), messagesOf(events))
		}
		return nil
	})
	f.check(f.Client.CoreV1().Services(f.Namespace).Delete(t.Context(), "one", metav1.DeleteOptions{}))
	table, err := f.Client.CoreV1().ConfigMaps(f.Namespace).Get(t.Context(), wellknown.TargetsConfigMap, metav1.GetOptions{})
	f.check(err)
	f.waitForEvent(table, "ServerMissing", first)
	f.waitForTarget(first, atAddressOf(services[first])) // its volumes keep their port
	f.waitForBound(f.createClaim("afterwards"))
	again := f.createServer("one", first)
	f.check(f.renewCertificates(f.Client, time.Now(), "one", "two"))
	f.waitForTarget(first, atAddressOf(again))
}

// TestServiceWithAnIDInUseIsRefused: the older one serves, and is left alone.
func TestServiceWithAnIDInUseIsRefused(t *testing.T) {
	f := newServerFixture(t)
	id := f.Named("nfs")
	older := f.createServer("a-older", id)
	f.check(f.renewCertificates(f.Client, time.Now(), "a-older"))
	f.waitForTarget(id, atAddressOf(older))
	younger := f.createServer("b-younger", id)
	f.check(f.renewCertificates(f.Client, time.Now(), "b-younger"))
	f.waitForEvent(younger, "ServerRefused", "Service b-younger is not used as an NFS server: the Service a-older")
	f.waitForEvent(f.createServer("c-wrong", "NFS"), "ServerRefused", "want 1 to 43 lower-case letters")
	f.waitForTarget(id, atAddressOf(older))
	f.waitForBound(f.createClaim("data"))
}

// TestAuthorityOfAServerIsReplaced: the table has the old one beside the new one, by the rights of the certificate Job.
func TestAuthorityOfAServerIsReplaced(t *testing.T) {
	f := newServerFixture(t)
	id := f.Named("nfs")
	f.createServer("efs-nfs-server", id)
	f.grant("../../deploy/kustomize/components/nfs-server/certificates-rbac.yaml")
	client, err := kubernetes.NewForConfig(f.as("efs-nfs-certificates"))
	f.check(err)
	now := time.Now()
	f.check(f.renewCertificates(client, now, "efs-nfs-server"))
	first := f.waitForTarget(id, func(ports.Target) error { return nil }).CACertificates
	secrets := func() string {
		list, err := f.Client.CoreV1().Secrets(f.Namespace).List(t.Context(), metav1.ListOptions{})
		f.check(err)
		return fmt.Sprint(versions(list.Items))
	}
	before := secrets()
	f.check(f.renewCertificates(client, now, "efs-nfs-server"))
	if after := secrets(); after != before {
		t.Errorf("the second renewal wrote Secrets: %s, then %s", before, after)
	}
	f.check(f.renewCertificates(client, now.AddDate(8, 0, 0), "efs-nfs-server"))
	f.waitForTarget(id, func(t ports.Target) error {
		if !strings.HasSuffix(t.CACertificates, first) || t.CACertificates == first {
			return fmt.Errorf("its authorities are\n%s", t.CACertificates)
		}
		return nil
	})
	if err := f.renewCertificates(client, now, "another"); !apierrors.IsForbidden(errors.Unwrap(err)) {
		t.Errorf("another server: got %v, want that it is forbidden", err)
	}
}

func versions(secrets []corev1.Secret) map[string]string {
	all := map[string]string{}
	for _, secret := range secrets {
		all[secret.Name] = secret.ResourceVersion
	}
	return all
}
