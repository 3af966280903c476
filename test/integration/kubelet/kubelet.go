// Package kubelet plays the scheduler and the kubelets of a cluster for the pods of mount Jobs:
// it gives them a node, mounts their volumes, runs mountjob's own code in this process, and
// writes back what a kubelet would. A mount is a folder of the test: which one, a node's tunnel
// decides, as on a real node.
//
// What goes wrong with a pod is its Fate, which tests choose while everything runs.
package kubelet

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Options say for which pods a Kubelet is there, and in what world.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	// Tunnel gives the folder that stands for the file system behind a loopback port of the
	// nodes. An error is what the mount says: nobody listens there.
	Tunnel func(ctx context.Context, port int) (folder string, err error)
	// Scratch is a folder for what pods have of their own.
	Scratch string
	// Failed hears of what must not happen in a test. It may be called at any time while Run
	// runs.
	Failed func(error)
}

// Kubelet plays every node of a world.
type Kubelet struct {
	options Options
	living  sync.WaitGroup

	mu    sync.Mutex
	fate  Fate             // guarded by mu: of pods for which next has none
	next  []Fate           // guarded by mu
	lives map[string]*life // guarded by mu; by uid
	runs  []Run            // guarded by mu
}

// Run is what a container did, or is about to do.
type Run struct {
	Job, Pod, Node string
	Args           []string // as the container has them
	Operations     string   // JSON, as the container reads it
	Directory      string   // the folder that stands for the file system
	ExitCode       int32
	Message        string // its termination message
	Log            string
}

// New makes a Kubelet. Run runs it.
func New(options Options) *Kubelet {
	return &Kubelet{options: options, lives: map[string]*life{}}
}

// Play sets the fate of all pods from the next one on; the zero Fate is a good life.
func (k *Kubelet) Play(fate Fate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fate, k.next = fate, nil
}

// PlayNext sets the fates of the next pods, one each, before that of Play comes again.
func (k *Kubelet) PlayNext(fates ...Fate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next = append(k.next, fates...)
}

// Runs are those of all containers that have ended, also of those whose end nobody was told.
func (k *Kubelet) Runs() []Run {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.runs)
}

// Run plays until the context ends. It returns when no container runs any more.
func (k *Kubelet) Run(ctx context.Context) {
	defer k.living.Wait()
	factory := informers.NewSharedInformerFactoryWithOptions(k.options.Client, 0,
		informers.WithNamespace(k.options.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = wellknown.LabelComponent + "=" + wellknown.ComponentWorker
		}))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.saw(ctx, object) },
		UpdateFunc: func(_, object any) { k.saw(ctx, object) },
		DeleteFunc: k.sawGone,
	})
	if err != nil {
		k.options.Failed(fmt.Errorf("watching pods: %w", err))
		return
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	factory.Shutdown()
}

// saw begins the life of a pod that is new, and tells it when it is being deleted.
func (k *Kubelet) saw(ctx context.Context, object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	l := k.lifeOf(ctx, pod)
	if pod.DeletionTimestamp != nil {
		l.delete()
		l.terminate(errDeleted)
	}
}

func (k *Kubelet) lifeOf(ctx context.Context, pod *corev1.Pod) *life {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l, known := k.lives[string(pod.UID)]; known {
		return l
	}
	l := newLife(ctx, k, pod.DeepCopy(), k.takeFate())
	k.lives[string(pod.UID)] = l
	k.living.Go(l.live)
	return l
}

// takeFate needs mu.
func (k *Kubelet) takeFate() Fate {
	if len(k.next) == 0 {
		return k.fate
	}
	fate := k.next[0]
	k.next = k.next[1:]
	return fate
}

func (k *Kubelet) sawGone(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	l := k.lives[string(pod.UID)]
	k.mu.Unlock()
	if l != nil {
		l.end()
	}
}

func (k *Kubelet) record(run Run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs = append(k.runs, run)
}
