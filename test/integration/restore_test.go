//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/election"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/test/integration/cluster"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// TestRestoredEtcdIsNoticed: many claims are deleted, and then etcd is restored from the backup of before, under a
// replica that leads. Its caches have no claim any more, and must not count as current while the apiserver has
// them; and it ends.
func TestRestoredEtcdIsNoticed(t *testing.T) {
	t.Parallel()
	const count = 40
	own := cluster.ForTest(t)
	client, err := kubernetes.NewForConfig(own.Config())
	check(t, err)
	claims := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	create := func(name string) error {
		_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
		}}, metav1.CreateOptions{})
		return err
	}
	for n := range count {
		check(t, create(fmt.Sprint("claim-", n)))
	}
	led, c := leadAndWatch(t, own, client)
	backup, err := own.Backup(t.Context())
	check(t, err)
	for n := range count {
		check(t, claims.Delete(t.Context(), fmt.Sprint("claim-", n), metav1.DeleteOptions{}))
	}
	check(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return caches.Count(c.Claims) == 0, nil
	}))
	check(t, own.Restore(t.Context(), backup))
	for n := range 20 { // each is an event for a cache that is current
		check(t, create(fmt.Sprint("new-", n)))
		if c.IsCurrent(t.Context(), c.Claims) && caches.Count(c.Claims) < count {
			t.Fatalf("a cache with %d claims is current, and the apiserver has %d", caches.Count(c.Claims), count+n+1)
		}
	}
	expectEnd(t, led)
}

// TestEtcdRestoredInTheMiddleOfAMassDeletion removes no directory of the claims that are there again, by the leader of
// before, which still has to clean up after them, or by the next one.
func TestEtcdRestoredInTheMiddleOfAMassDeletion(t *testing.T) {
	t.Parallel()
	own := cluster.ForTest(t)
	f := fixtureIn(testenv.New(t, own))
	led := f.lead()
	claims := f.createClaims(60)
	f.waitForBound(claims...)
	f.WaitForJobsReleased() // none goes on with the cleanups
	allow := f.refuseJobs()
	backup, err := own.Backup(t.Context())
	check(t, err)
	f.deleteClaims(claims...)
	for _, claim := range claims {
		f.waitForPhase(volumes.VolumeName(claim.UID), corev1.VolumeReleased)
	}
	check(t, own.Restore(t.Context(), backup))
	f.check(allow(t.Context()))
	expectEnd(t, led)
	own.StopControllers() // their caches are of later versions, too, and they do not notice
	check(t, own.StartControllers())
	f.startManager(nil)
	last := f.createClaim("last")
	f.Eventually("the next leader has a Job for a new claim", func(ctx context.Context) error {
		if f.setupsOf(ctx, string(last.UID)) == 0 {
			return errors.New("it has none")
		}
		return nil
	})
	for _, job := range f.mountJobs() {
		for _, o := range f.operationsOf(job) {
			if o.Kind == operations.Cleanup {
				t.Errorf("Job %s is to remove %s of a claim that is there", job.Name, o.Claim)
			}
		}
	}
	for _, claim := range claims {
		if path := "/" + f.Team + "/" + claim.Name; f.getClaim(claim).Status.Phase != corev1.ClaimBound || !f.Exists(f.fileSystem, path) {
			t.Errorf("claim %s is not bound, or its directory is gone\n%s", claim.Name, f.Dump())
		}
	}
}

// refuseJobs has the apiserver refuse every Job until they are allowed again.
func (f *fixture) refuseJobs() (allow func(context.Context) error) {
	f.Helper()
	const name = "no-jobs"
	policies := f.Client.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(f.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "no Job now"}},
		},
	}, metav1.CreateOptions{})
	f.check(err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(f.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	f.check(err)
	waitForRefusal(f.Env, "no Job now", func(ctx context.Context) error {
		_, err := f.Client.BatchV1().Jobs(f.Namespace).Create(ctx, managerJobs(f.Env)["mount, plain"], dryRun())
		return err
	})
	return func(ctx context.Context) error {
		return policies.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})
	}
}

// lead has a manager lead until the end of the test. What it ends with comes over the channel.
func (f *fixture) lead() (led <-chan error) {
	f.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	run, err := f.newManager(ctx, f.Config)
	f.check(err)
	e := newElection(f, f.Client)
	ended := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { ended <- e.Run(ctx, run) })
	f.Cleanup(func() {
		stop()
		running.Wait()
	})
	return ended
}

func newElection(t testing.TB, client kubernetes.Interface) *election.Election {
	t.Helper()
	e, err := election.New(election.Options{
		Requests: client, Watches: client, Namespace: metav1.NamespaceDefault, Name: "lease", Identity: "replica",
		LeaseDuration: 90 * time.Second, RenewDeadline: time.Minute, RetryPeriod: time.Second, Log: slog.New(slog.DiscardHandler),
	})
	check(t, err)
	return e
}

// expectEnd of a leader whose etcd was restored.
func expectEnd(t *testing.T, led <-chan error) {
	t.Helper()
	select {
	case err := <-led:
		if !errors.Is(err, election.ErrRestored) && !errors.Is(err, election.ErrLost) {
			t.Errorf("the leader ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the leader goes on")
	}
}

// leadAndWatch runs caches and an election, until the test ends, and returns when they work.
func leadAndWatch(t *testing.T, own *cluster.Cluster, client kubernetes.Interface) (led <-chan error, c *caches.Caches) {
	t.Helper()
	lists, err := metadata.NewForConfig(own.Config())
	check(t, err)
	c, err = caches.New(client, lists, wellknown.Namespace)
	check(t, err)
	e := newElection(t, client)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	running.Go(func() { c.Run(ctx) })
	ended, leads := make(chan error, 1), make(chan struct{})
	running.Go(func() {
		ended <- e.Run(ctx, func(ctx context.Context) error {
			close(leads)
			<-ctx.Done()
			return nil
		})
	})
	check(t, c.Await(ctx))
	<-leads
	return ended, c
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
