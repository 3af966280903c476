package election_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/kube/election"
)

const (
	namespace = "efs-stunnel"
	lease     = "efs-manager"
)

func newElection(t *testing.T, client *fake.Clientset, identity string) *election.Election {
	t.Helper()
	e, err := election.New(election.Options{
		Requests: client, Watches: client, Namespace: namespace, Name: lease, Identity: identity,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// replica is a running Election.
type replica struct {
	*election.Election
	stop    context.CancelFunc
	started time.Time  // when it began to lead
	result  chan error // of Run
}

// start runs an election. Its work drains for a while when its context ends.
func start(t *testing.T, client *fake.Clientset, identity string, drain time.Duration) *replica {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &replica{Election: newElection(t, client, identity), stop: stop, result: make(chan error, 1)}
	go func() {
		r.result <- r.Run(ctx, func(ctx context.Context) error {
			r.started = time.Now()
			<-ctx.Done()
			<-time.After(drain)
			return nil
		})
	}()
	t.Cleanup(func() { // a bubble must be empty at its end
		stop()
		synctest.Wait()
	})
	return r
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func held(t *testing.T, client *fake.Clientset) coordinationv1.LeaseSpec {
	t.Helper()
	got, err := client.CoordinationV1().Leases(namespace).Get(t.Context(), lease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Spec
}

func wantHolder(t *testing.T, client *fake.Clientset, want string) {
	t.Helper()
	if got := *held(t, client).HolderIdentity; got != want {
		t.Errorf("the lease is held by %q, want %q", got, want)
	}
}

func TestLeaseIsHeldUntilTheWorkIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		a := start(t, client, "a", time.Minute)
		pass(time.Second)
		if !a.Leading() {
			t.Fatal("the only replica does not lead")
		}
		a.stop()
		pass(59 * time.Second)
		wantHolder(t, client, "a")
		if age := time.Since(held(t, client).RenewTime.Time); age > 3*time.Second {
			t.Errorf("the lease was renewed %s ago, want it renewed while the work drains", age)
		}
		if !a.Leading() || len(a.result) > 0 {
			t.Error("it ended before its work")
		}
		pass(2 * time.Second)
		wantHolder(t, client, "")
		if err := <-a.result; err != nil || a.Leading() {
			t.Errorf("got %v and leading %t after the end", err, a.Leading())
		}
	})
}

func TestStandbyLeadsAsSoonAsTheLeaseIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		a := start(t, client, "a", 0)
		pass(time.Second)
		b := start(t, client, "b", 0)
		pass(time.Minute)
		if !a.Leading() || b.Leading() {
			t.Fatalf("leading: a %t, b %t; want a only", a.Leading(), b.Leading())
		}
		given := time.Now()
		a.stop()
		pass(10 * time.Second)
		// The clock of the bubble only moves when everybody waits, so this is no matter of
		// the machine's speed: a retry would take at least 2s.
		if waited := b.started.Sub(given); !b.Leading() || waited > 100*time.Millisecond {
			t.Errorf("leading %t, %s after the lease was given back", b.Leading(), waited)
		}
		wantHolder(t, client, "b")
	})
}

func TestStandbyWaitsUntilTheLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, seconds, now := "silent", int32(15), metav1.NowMicro()
		client := fake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &silent, LeaseDurationSeconds: &seconds, RenewTime: &now, AcquireTime: &now},
		})
		b := start(t, client, "b", 0)
		pass(14 * time.Second)
		if b.Leading() {
			t.Error("it leads although the lease has not expired")
		}
		pass(3 * time.Second)
		if !b.Leading() {
			t.Error("it does not lead although the lease has expired 2 seconds ago")
		}
	})
}

// TestLeaderRenewsAtItsOwnPace: that of those who wait would be four times as many writes.
func TestLeaderRenewsAtItsOwnPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		start(t, client, "a", 0)
		start(t, client, "b", 0)
		pass(time.Second)
		client.ClearActions()
		pass(time.Minute)
		writes := 0
		for _, action := range client.Actions() {
			if action.GetVerb() == "update" {
				writes++
			}
		}
		if writes < 29 || writes > 31 {
			t.Errorf("%d writes a minute, want one every 2 s", writes)
		}
	})
}

func TestStandbyDoesNotWriteTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		start(t, client, "a", 0)
		pass(time.Second)
		b := start(t, client, "b", 0)
		pass(time.Second)
		b.stop()
		if err := <-b.result; err != nil {
			t.Errorf("got %v, want a clean end", err)
		}
		wantHolder(t, client, "a")
	})
}

// TestLostLeaseEndsAtOnce has a work that would continue for an hour, as one that hangs does.
func TestLostLeaseEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var away atomic.Bool
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("the apiserver is away")
		})
		a := newElection(t, client, "a")
		result, cause := make(chan error, 1), make(chan error, 1)
		go func() {
			result <- a.Run(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				<-time.After(time.Hour)
				return nil
			})
		}()
		pass(time.Second)
		away.Store(true)
		lost := time.Now()
		if err := <-result; !errors.Is(err, election.ErrLost) {
			t.Errorf("got %v, want %v", err, election.ErrLost)
		}
		if waited := time.Since(lost); waited >= 15*time.Second {
			t.Errorf("it led for %s without a lease, when another may lead already", waited)
		}
		if err := <-cause; !errors.Is(err, election.ErrLost) {
			t.Errorf("the work ended because of %v, want %v", err, election.ErrLost)
		}
		if a.Leading() {
			t.Error("it says that it leads")
		}
		pass(2 * time.Hour) // the work's end
		if a.Check() == nil {
			t.Error("a process that goes on after that counts as healthy")
		}
	})
}

// TestRestoredEtcdEndsEveryReplica: the Lease has an older version than before, and so has everything else.
func TestRestoredEtcdEndsEveryReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var version atomic.Int64
		version.Store(100)
		client.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			handled, object, err := clienttesting.ObjectReaction(client.Tracker())(action)
			if stored, ok := object.(*coordinationv1.Lease); ok && err == nil {
				stored = stored.DeepCopy()
				stored.ResourceVersion = strconv.FormatInt(version.Add(1), 10)
				object = stored
			}
			return handled, object, err
		})
		a := start(t, client, "a", time.Hour)
		pass(time.Second)
		b := start(t, client, "b", 0)
		pass(time.Minute)
		if !a.Leading() || len(a.result)+len(b.result) > 0 {
			t.Fatal("the replicas do not run")
		}
		version.Store(50)
		pass(5 * time.Second)
		for name, r := range map[string]*replica{"leader": a, "standby": b} {
			select {
			case err := <-r.result:
				if !errors.Is(err, election.ErrRestored) || r.Leading() {
					t.Errorf("the %s ends with %v, leading %t", name, err, r.Leading())
				}
			default:
				t.Errorf("the %s goes on", name)
			}
		}
		pass(2 * time.Hour) // the leader's work
	})
}

func TestErrorOfTheWorkReleasesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		want := errors.New("the caches cannot be read")
		err := newElection(t, client, "a").Run(t.Context(), func(context.Context) error { return want })
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		wantHolder(t, client, "")
		synctest.Wait()
	})
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := election.New(election.Options{
		Requests: fake.NewClientset(), Watches: fake.NewClientset(), Namespace: namespace, Name: lease, Identity: "a",
		LeaseDuration: 10 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		t.Error("a lease that expires before its leader gives up is no error")
	}
}

func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		a := start(t, client, "a", 0)
		if err := a.Check(); err != nil {
			t.Errorf("before the election: %v", err)
		}
		pass(time.Minute)
		if err := a.Check(); err != nil || !a.Leading() {
			t.Errorf("leading %t, %v", a.Leading(), err)
		}
	})
}
