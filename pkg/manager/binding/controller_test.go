package binding

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const namespace = "efs-stunnel"

func newController(t *testing.T, client *fake.Clientset) *Controller {
	t.Helper()
	all, err := caches.New(client, nil, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return New(client, all, Options{
		Namespace: namespace, Provisioner: wellknown.DefaultProvisioner, Now: apiserverTime, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
}

// apiserverTime is not the machine's time.
func apiserverTime() time.Time { return time.Now().Add(-10 * time.Minute) }

// running is a controller with a volume in its caches that was created now, and with the questions that it asks.
type running struct {
	*Controller
	*fake.Clientset
	*testing.T
	volume *corev1.PersistentVolume
	end    func()
}

func start(t *testing.T, existing ...*corev1.PersistentVolume) *running {
	volume, claim := pair()
	volume.CreationTimestamp = metav1.NewTime(apiserverTime())
	client := fake.NewClientset(volume, claim)
	r := &running{newController(t, client), client, t, volume, nil}
	r.store(r.Controller.caches.Claims, claim)
	r.store(r.Controller.caches.Volumes, volume)
	for _, other := range existing {
		r.store(r.Controller.caches.Volumes, other)
		if err := client.Tracker().Add(other); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Controller.Run(ctx) }()
	r.end = func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return r
}

func (r *running) store(informer cache.SharedIndexInformer, object any) {
	if err := informer.GetStore().Update(object); err != nil {
		r.Fatal(err)
	}
}

// questions returns the questions that exist.
func (r *running) questions() (names []string) {
	r.Helper()
	found, err := r.CoreV1().PersistentVolumes().List(r.Context(), metav1.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	for _, volume := range found.Items {
		if strings.HasPrefix(volume.Name, wellknown.QuestionPrefix) {
			names = append(names, volume.Name)
		}
	}
	return names
}

// answer has the binder write a phase to the one question that exists.
func (r *running) answer(phase corev1.PersistentVolumePhase) string {
	r.Helper()
	names := r.questions()
	if len(names) != 1 {
		r.Fatalf("the questions are %v, want one", names)
	}
	question := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: names[0]}}
	question.Status.Phase = phase
	r.store(r.Controller.caches.Volumes, question)
	return names[0]
}

// advance lets the time pass in which the controller has done what it can.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (r *running) claimWrites() (writes int) {
	for _, action := range r.Actions() {
		if _, ok := action.(clienttesting.PatchAction); ok && action.GetResource().Resource == "persistentvolumeclaims" {
			writes++
		}
	}
	return writes
}

// TestClaimIsBoundOnlyAfterTwoAnswers of a binder that the test plays: it answers questions and binds nothing.
func TestClaimIsBoundOnlyAfterTwoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		defer r.end()
		advance(grace)
		if asked := r.questions(); len(asked) != 0 {
			t.Errorf("%v is asked while the binder has time", asked)
		}
		advance(2 * interval)
		asked := map[string]bool{}
		for range questions {
			r.answer(corev1.VolumePending)
			advance(time.Minute)
			if r.claimWrites() != 0 {
				t.Fatal("the claim is written before the answer")
			}
			asked[r.answer(corev1.VolumeAvailable)] = true
			advance(interval / 2)
		}
		if len(asked) != questions || r.claimWrites() != 2 {
			t.Errorf("%d questions and %d writes of the claim, want %d and 2", len(asked), r.claimWrites(), questions)
		}
		if left := r.questions(); len(left) != 0 {
			t.Errorf("%v are left", left)
		}
	})
}

// TestVolumeThatWasReplacedMeanwhileIsNotBound: the answers are no proof for another volume of the name.
func TestVolumeThatWasReplacedMeanwhileIsNotBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		defer r.end()
		advance(grace + 2*interval)
		another := r.volume.DeepCopy()
		another.UID, another.CreationTimestamp = "other", metav1.NewTime(time.Now().Add(time.Hour))
		r.store(r.Controller.caches.Volumes, another)
		for range questions {
			r.answer(corev1.VolumeAvailable)
			advance(interval / 2)
		}
		if writes := r.claimWrites(); writes != 0 {
			t.Errorf("%d writes of the claim", writes)
		}
	})
}

// TestNothingIsAskedForAVolumeThatNobodyWouldBind: each answer is a request of the binder.
func TestNothingIsAskedForAVolumeThatNobodyWouldBind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		defer r.end()
		if err := r.Controller.caches.Claims.GetStore().Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
		advance(time.Minute)
		if asked := r.questions(); len(asked) != 0 {
			t.Errorf("%v is asked", asked)
		}
	})
}

// TestQuestionsOfAnEarlierLeaderAreDeleted, and those of another installation are not.
func TestQuestionsOfAnEarlierLeaderAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		question := func(name, namespace string) *corev1.PersistentVolume {
			found, _ := volumes.Reserved{VolumeMeta: metav1.ObjectMeta{Name: name}, ClaimMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}.Objects()
			return found
		}
		r := start(t, question(wellknown.QuestionPrefix+"1", namespace), question(wellknown.QuestionPrefix+"2", "other"))
		advance(interval)
		r.end()
		if left := r.questions(); len(left) != 1 || left[0] != wellknown.QuestionPrefix+"2" {
			t.Errorf("%v are left", left)
		}
	})
}
