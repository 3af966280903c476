// Package kubelet simulates the scheduler and the kubelets of a cluster for the pods of mount Jobs: it
// binds them to a node, mounts their volumes, runs mountjob's own code in this process, and writes
// their status as a kubelet would. A mount is a folder of the test. Which one, the node's tunnel
// decides, as on a real node.
//
// Tests choose a Behavior for pods that are to fail.
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

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Options are the settings of a Kubelet.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	// Tunnel returns the folder that stands for the file system behind a loopback port of the
	// nodes. With an error the mount fails, as where no process listens.
	Tunnel func(ctx context.Context, port int) (folder string, err error)
	// Scratch is a folder for the pods' own files.
	Scratch string
	// Failed is called with errors of the simulation itself, at any time while Run runs.
	Failed func(error)
}

// Kubelet simulates all nodes.
type Kubelet struct {
	options Options
	running sync.WaitGroup

	mu       sync.Mutex
	behavior Behavior        // guarded by mu: of pods for which queued has none
	queued   []Behavior      // guarded by mu
	pods     map[string]*pod // guarded by mu; by uid
	runs     []Run           // guarded by mu
}

// Run is one run of a container.
type Run struct {
	Job, Pod, Node string
	Operations     string // JSON, as the container reads it
	ExitCode       int32
	Message        string // its termination message
	Log            string
}

// New makes a Kubelet, which Run starts.
func New(options Options) *Kubelet {
	return &Kubelet{options: options, pods: map[string]*pod{}}
}

// SetBehavior sets the behavior of all pods that are created from now on.
func (k *Kubelet) SetBehavior(behavior Behavior) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.behavior, k.queued = behavior, nil
}

// QueueBehavior sets the behavior of the next pods, one each; later pods have that of SetBehavior.
func (k *Kubelet) QueueBehavior(behaviors ...Behavior) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queued = append(k.queued, behaviors...)
}

// Runs returns the runs of all containers that have ended, also where no status was written.
func (k *Kubelet) Runs() []Run {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.runs)
}

// Run simulates until the context ends. It returns when no container runs any more.
func (k *Kubelet) Run(ctx context.Context) {
	defer k.running.Wait()
	factory := informers.NewSharedInformerFactoryWithOptions(k.options.Client, 0,
		informers.WithNamespace(k.options.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = wellknown.LabelComponent + "=" + wellknown.ComponentWorker
		}))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.observe(ctx, object) },
		UpdateFunc: func(_, object any) { k.observe(ctx, object) },
		DeleteFunc: k.observeDeleted,
	})
	if err != nil {
		k.options.Failed(fmt.Errorf("watching pods: %w", err))
		return
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	factory.Shutdown()
}

// observe starts a new pod, and terminates one that is being deleted.
func (k *Kubelet) observe(ctx context.Context, object any) {
	observed, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	p := k.podOf(ctx, observed)
	if observed.DeletionTimestamp != nil {
		p.terminate()
	}
}

// podOf starts the pod when it is new.
func (k *Kubelet) podOf(ctx context.Context, object *corev1.Pod) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, known := k.pods[string(object.UID)]; known {
		return p
	}
	p := newPod(ctx, k, object.DeepCopy(), k.nextBehavior())
	k.pods[string(object.UID)] = p
	k.running.Go(p.run)
	return p
}

// nextBehavior needs mu.
func (k *Kubelet) nextBehavior() Behavior {
	if len(k.queued) == 0 {
		return k.behavior
	}
	behavior := k.queued[0]
	k.queued = k.queued[1:]
	return behavior
}

func (k *Kubelet) observeDeleted(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	observed, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	p := k.pods[string(observed.UID)]
	k.mu.Unlock()
	if p != nil {
		p.end()
	}
}

func (k *Kubelet) record(run Run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs = append(k.runs, run)
}
