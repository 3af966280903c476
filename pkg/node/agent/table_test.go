package agent

import (
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// followed is a table that an agent follows, inside a bubble.
type followed struct {
	*testing.T
	client  *fake.Clientset
	agent   *Agent
	uid     types.UID
	version int
	reads   atomic.Int32 // of the whole table
	failing atomic.Bool  // these are refused
	noViews atomic.Bool  // lists of views are refused
}

func newFollowed(t *testing.T) *followed {
	f := &followed{T: t, client: fake.NewClientset(), uid: "uid-1"}
	f.client.PrependReactor("list", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, ok := action.(clienttesting.ListActionImpl)
		name, _ := list.ListRestrictions.Fields.RequiresExactMatch(metav1.ObjectNameField)
		switch {
		case !ok:
		case list.ListOptions.ResourceVersionMatch == metav1.ResourceVersionMatchNotOlderThan:
			f.reads.Add(1)
			return f.failing.Load(), nil, errors.New("boom")
		case name == wellknown.ViewConfigMap:
			return f.noViews.Load(), nil, apierrors.NewForbidden(corev1.Resource("configmaps"), name, errors.New("boom"))
		}
		return false, nil, nil
	})
	f.agent = &Agent{
		options: Options{
			Client: f.client, TableMetadata: FakeMetadata(f.client), ViewWait: 5 * time.Second, Namespace: "efs-stunnel", Log: slog.New(slog.DiscardHandler),
		},
		inbox: &inbox{wake: make(chan struct{}, 1)}, metrics: newMetrics(prometheus.NewRegistry()),
	}
	return f
}

func (f *followed) start() {
	f.Helper()
	w, err := f.agent.newTableWatch(f.agent.watchErrorHandler())
	if err != nil {
		f.Fatal(err)
	}
	go w.run(f.Context())
	f.pass(time.Second)
}

// pass lets time go by.
func (f *followed) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// write writes a ConfigMap, whether or not there is one.
func (f *followed) write(object *corev1.ConfigMap) {
	f.Helper()
	maps := f.client.CoreV1().ConfigMaps("efs-stunnel")
	if _, err := maps.Update(f.Context(), object, metav1.UpdateOptions{}); err != nil {
		if _, err = maps.Create(f.Context(), object, metav1.CreateOptions{}); err != nil {
			f.Fatal(err)
		}
	}
	synctest.Wait()
}

// edit writes the table alone, and returns the view that belongs to it.
func (f *followed) edit(text string) (view *corev1.ConfigMap) {
	f.Helper()
	f.version++
	table := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "efs-stunnel", Name: wellknown.TargetsConfigMap, UID: f.uid, ResourceVersion: strconv.Itoa(f.version)},
		Data:       map[string]string{wellknown.TargetsKey: text},
	}
	f.write(table)
	view, err := ports.NewView(table)
	if err != nil {
		f.Fatal(err)
	}
	return view
}

func (f *followed) want(text string, reads int32) {
	f.Helper()
	if got := f.agent.inbox.get(); got.table != text || !got.synced || got.deleted {
		f.Errorf("got %+v, want %q", got, text)
	}
	if got := f.reads.Load(); got != reads {
		f.Errorf("%d readings of the table, want %d", got, reads)
	}
}

func following(t *testing.T, check func(*followed)) {
	synctest.Test(t, func(t *testing.T) { check(newFollowed(t)) })
}

// TestTheTableIsTakenFromItsView, which may come some seconds after it, also to an agent that starts in between.
func TestTheTableIsTakenFromItsView(t *testing.T) {
	following(t, func(f *followed) {
		f.write(f.edit("one"))
		f.start()
		f.want("one", 0)
		view := f.edit("two")
		f.pass(5*time.Second - 1)
		f.want("one", 0)
		f.write(view)
		f.want("two", 0)
		f.pass(time.Hour)
		f.want("two", 0)
	})
}

// TestTheTableIsReadWithoutItsView once after each change, and after the start.
func TestTheTableIsReadWithoutItsView(t *testing.T) {
	tests := map[string]func(f *followed, view *corev1.ConfigMap){
		"that is missing": func(*followed, *corev1.ConfigMap) {},
		"of an earlier version": func(f *followed, view *corev1.ConfigMap) {
			f.write(view)
			f.edit("one")
		},
		"that is garbage": func(f *followed, view *corev1.ConfigMap) {
			for key := range view.BinaryData {
				view.BinaryData[key] = []byte("garbage")
			}
			f.write(view)
		},
		"that it has no right to watch": func(f *followed, view *corev1.ConfigMap) {
			f.write(view)
			f.noViews.Store(true)
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			following(t, func(f *followed) {
				damage(f, f.edit("one"))
				f.start()
				f.pass(10 * time.Second)
				f.want("one", 1)
				f.edit("two")
				f.pass(5*time.Second - 1)
				f.want("one", 1)
				f.pass(5*time.Second + 1)
				f.want("two", 2)
				f.pass(time.Hour)
				f.want("two", 2)
			})
		})
	}
}

// TestATableThatCannotBeReadStays until it can.
func TestATableThatCannotBeReadStays(t *testing.T) {
	following(t, func(f *followed) {
		f.write(f.edit("one"))
		f.start()
		f.failing.Store(true)
		view := f.edit("two")
		f.pass(time.Minute)
		if reads := f.reads.Load(); reads < 5 || reads > 12 {
			t.Errorf("%d tries in a minute", reads)
		}
		f.want("one", f.reads.Load())
		f.write(view)
		f.want("two", f.reads.Load())
	})
}

// TestADeletedTableIsNotTheNextOne: a view of the deleted one is not used for one that has its version by chance.
func TestADeletedTableIsNotTheNextOne(t *testing.T) {
	following(t, func(f *followed) {
		f.write(f.edit("one"))
		f.start()
		if err := f.client.CoreV1().ConfigMaps("efs-stunnel").Delete(t.Context(), wellknown.TargetsConfigMap, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := f.agent.inbox.get(); got.table != "" || !got.synced || !got.deleted {
			t.Errorf("got %+v", got)
		}
		f.uid, f.version = "uid-2", 0
		f.edit("two")
		f.pass(10 * time.Second)
		f.want("two", 1)
	})
}
