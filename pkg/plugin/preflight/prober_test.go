package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// kubelet is an apiserver whose pods end at once as a test wants, and which counts the pods that are left.
type kubelet struct {
	*fake.Clientset

	mu   sync.Mutex
	pods map[string]*corev1.Pod // guarded by mu
	seen []*corev1.Pod          // guarded by mu; every pod that was created
}

// CoreV1 has a client that sends nothing once its context has ended, as a real one.
func (k *kubelet) CoreV1() typedcorev1.CoreV1Interface { return coreClient{k.Clientset.CoreV1()} }

type coreClient struct{ typedcorev1.CoreV1Interface }

func (c coreClient) Pods(namespace string) typedcorev1.PodInterface {
	return podClient{c.CoreV1Interface.Pods(namespace)}
}

type podClient struct{ typedcorev1.PodInterface }

func (c podClient) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.PodInterface.Delete(ctx, name, o)
}

func newKubelet(end func(*corev1.Pod)) *kubelet {
	k := &kubelet{Clientset: fake.NewClientset(), pods: map[string]*corev1.Pod{}}
	k.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		switch action := action.(type) {
		case clienttesting.CreateAction:
			pod, _ := action.GetObject().DeepCopyObject().(*corev1.Pod)
			pod.Name = pod.GenerateName + pod.Spec.NodeName
			end(pod)
			k.pods[pod.Name], k.seen = pod, append(k.seen, pod)
			return true, pod, nil
		case clienttesting.DeleteAction:
			delete(k.pods, action.GetName())
			return true, nil, nil
		case clienttesting.GetAction:
			return true, k.pods[action.GetName()], nil
		}
		return false, nil, nil
	})
	return k
}

func ended(code int32, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message},
		}}}
	}
}

func waits(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "preflight", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such image"},
		}}}
	}
}

func proberOf(k *kubelet) *Prober {
	request := nodereport.Request{Region: "us-east-1"}
	return &Prober{Client: k, Namespace: "efs-stunnel", Image: "efs-stunnel:1.2", Request: request, Progress: func(string) {}}
}

func TestProberReadsReportsAndLeavesNoPod(t *testing.T) {
	tests := map[string]struct {
		end  func(*corev1.Pod)
		want string // a part of why a node was not examined; "" if it was
	}{
		"a report":             {ended(0, `{"kernel":"6.1"}`), ""},
		"an older program":     {ended(2, ""), "code 2"},
		"no report":            {ended(0, "oops"), "the report cannot be read"},
		"no image":             {waits("ImagePullBackOff"), "no such image"},
		"it never starts":      {waits("ContainerCreating"), "did not end within 2m0s"},
		"the kubelet refuses":  {func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "OutOfpods" }, "OutOfpods"},
		"it exceeds its time":  {func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "DeadlineExceeded" }, "DeadlineExceeded"},
		"a container is there": {func(*corev1.Pod) {}, "did not end within"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKubelet(tt.end)
				nodes := []*corev1.Node{newNode("n1", ""), newNode("n2", ""), newNode("w", "")}
				nodes[2].Status.NodeInfo.OperatingSystem = "windows"
				got, err := proberOf(k).Run(t.Context(), nodes)
				if err != nil || len(got) != 2 || len(k.pods) != 0 {
					t.Fatalf("%+v, %v, %d pods are left", got, err, len(k.pods))
				}
				for node, report := range got {
					if tt.want == "" && (report.Why != "" || report.Kernel != "6.1") || tt.want != "" && !strings.Contains(report.Why, tt.want) {
						t.Errorf("%s: %+v", node, report)
					}
				}
			})
		})
	}
}

// TestProberLeavesNoPodAfterAnInterrupt: the context of the command has ended when the pod is deleted.
func TestProberLeavesNoPodAfterAnInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		k := newKubelet(func(*corev1.Pod) { cancel() })
		_, err := proberOf(k).Run(ctx, []*corev1.Node{newNode("n1", "")})
		if !errors.Is(err, context.Canceled) || len(k.seen) != 1 || len(k.pods) != 0 {
			t.Errorf("%v, %d pods, of which %d are left", err, len(k.seen), len(k.pods))
		}
	})
}

func TestPodsThatAreRefused(t *testing.T) {
	k := newKubelet(func(*corev1.Pod) {})
	k.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("violates PodSecurity \"restricted\"")
	})
	got, err := proberOf(k).Run(t.Context(), []*corev1.Node{newNode("n1", "")})
	if why := got["n1"].Why; err != nil || !strings.Contains(why, "restricted") || !strings.Contains(why, "--system-namespace") {
		t.Errorf("%q, %v", why, err)
	}
}

// TestPodsMayDoLittle holds what they are: they have the node's files.
func TestPodsMayDoLittle(t *testing.T) {
	k := newKubelet(ended(0, "{}"))
	if _, err := proberOf(k).Run(t.Context(), []*corev1.Node{newNode("n1", ""), newNode("n2", "")}); err != nil {
		t.Fatal(err)
	}
	asking := 0
	for _, pod := range k.seen {
		spec, container := pod.Spec, pod.Spec.Containers[0]
		if spec.ActiveDeadlineSeconds == nil || *spec.AutomountServiceAccountToken || !*spec.SecurityContext.RunAsNonRoot ||
			spec.HostPID || spec.HostIPC || spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("pod %+v", spec)
		}
		if c := container.SecurityContext; c.Privileged != nil || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || len(c.Capabilities.Add) > 0 {
			t.Errorf("container %+v", c)
		}
		for _, mount := range container.VolumeMounts {
			if mount.Name == hostVolume && !mount.ReadOnly {
				t.Error("the node's files are not read-only")
			}
		}
		var request nodereport.Request
		if err := json.Unmarshal([]byte(container.Command[2]), &request); err != nil || request.Host != hostPath {
			t.Errorf("request %q, %v", container.Command, err)
		}
		if request.Region != "" {
			asking++
		}
	}
	if asking != 1 {
		t.Errorf("%d pods ask the EFS API", asking)
	}
}

func TestGather(t *testing.T) {
	tests := map[string]struct {
		edit func(apiserver *corev1.Pod)
		want ports.Span
	}{
		"another range":         {func(*corev1.Pod) {}, ports.Span{First: 20000, Last: 20999}},
		"the default":           {func(pod *corev1.Pod) { pod.Spec.Containers[0].Command = nil }, defaultNodePorts()},
		"another pod":           {func(pod *corev1.Pod) { pod.Labels = nil }, ports.Span{}},
		"a pod of a tenant":     {func(pod *corev1.Pod) { pod.Namespace = "team" }, ports.Span{}},
		"a range of no numbers": {func(pod *corev1.Pod) { pod.Spec.Containers[0].Command[1] += "x" }, ports.Span{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "efs-stunnel"}}
			apiserver := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-apiserver-x", Labels: map[string]string{"component": "kube-apiserver"}}}
			apiserver.Spec.Containers = []corev1.Container{{Command: []string{"kube-apiserver", "--service-node-port-range=20000-20999"}}}
			tt.edit(apiserver)
			client := fake.NewClientset(namespace, service(20490), podWith("team", 20490), podWith("other", 0), newNode("n1", ""), apiserver)
			setVersion(t, client)
			f, err := Gather(t.Context(), client, Options{Namespace: "efs-stunnel", Ports: tunnels})
			if err != nil || len(f.Unread) != 0 || len(f.Nodes) != 1 || len(f.Services) != 1 || len(f.Pods) != 1 || f.Labels == nil || f.Version != "v1.36.0" {
				t.Fatalf("%+v, %v", f, err)
			}
			if f.NodePorts != tt.want {
				t.Errorf("%s, want %s", f.NodePorts, tt.want)
			}
		})
	}
}

func TestGatherWithoutAnAnswer(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	if _, err := Gather(t.Context(), client, Options{}); err == nil {
		t.Error("no error")
	}
}

func setVersion(t *testing.T, client *fake.Clientset) {
	t.Helper()
	discovery, ok := client.Discovery().(*discoveryfake.FakeDiscovery)
	if !ok {
		t.Fatalf("%T", client.Discovery())
	}
	discovery.FakedServerVersion = &version.Info{GitVersion: "v1.36.0"}
}

func TestGatherWithoutRights(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() == "get" && action.GetResource().Resource == "version" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: action.GetResource().Resource}, "", nil)
	})
	setVersion(t, client)
	f, err := Gather(t.Context(), client, Options{Namespace: "efs-stunnel", Ports: tunnels})
	if err != nil || len(f.Unread) != 5 {
		t.Fatalf("%+v, %v", f, err)
	}
	if d := Check(f); d.Level != inspect.Unknown {
		t.Errorf("%+v", d)
	}
}
