package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
)

// Prober runs a short-lived pod on each node.
type Prober struct {
	Client      kubernetes.Interface
	Namespace   string // of the pods
	Image       string // of the node agent
	PullSecrets []corev1.LocalObjectReference
	Request     nodereport.Request // without the paths in the pods
	Progress    func(step string)
}

// Bounds of the pods.
const (
	parallelPods = 10
	podDeadline  = 2 * time.Minute  // also of pods that could not be deleted
	podCleanup   = 10 * time.Second // to delete one, also after an interrupt
	pollInterval = time.Second
)

// The names of the pods and of their parts.
const (
	podPrefix     = "efs-preflight-"
	containerName = "preflight"
	hostVolume    = "host"
	hostPath      = "/host"
	partPreflight = "preflight" // of wellknown.LabelAppComponent
)

// Run examines nodes, and leaves no pod. An error means that the context has ended.
func (p *Prober) Run(ctx context.Context, nodes []*corev1.Node) (map[string]NodeReport, error) {
	var mu sync.Mutex
	reports := map[string]NodeReport{}
	var group errgroup.Group
	group.SetLimit(parallelPods)
	served := slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool { _, ok := isServed(node); return !ok })
	for i, node := range served {
		group.Go(func() error {
			p.Progress(fmt.Sprintf("examining node %s (%d of %d)", node.Name, i+1, len(served)))
			report := p.examine(ctx, node.Name, i == 0)
			mu.Lock()
			defer mu.Unlock()
			reports[node.Name] = report
			return nil
		})
	}
	_ = group.Wait()
	return reports, ctx.Err()
}

// examine runs one pod. Only one node asks the EFS API: the others have the same identity.
func (p *Prober) examine(ctx context.Context, node string, asksAWS bool) NodeReport {
	if ctx.Err() != nil {
		return NodeReport{Why: ctx.Err().Error()}
	}
	request := p.Request
	request.Host, request.Proc = hostPath, "/proc"
	if !asksAWS {
		request.Region = ""
	}
	text, _ := json.Marshal(request) // strings only
	pod, err := p.Client.CoreV1().Pods(p.Namespace).Create(ctx, p.pod(node, string(text)), metav1.CreateOptions{})
	if err != nil {
		return NodeReport{Why: refusal(err, p.Namespace)}
	}
	defer p.delete(ctx, pod)
	report, err := p.await(ctx, pod)
	if err != nil {
		return NodeReport{Why: err.Error()}
	}
	return NodeReport{Report: report}
}

// refusal adds what helps against the usual one.
func refusal(err error, namespace string) string {
	text := err.Error()
	if strings.Contains(text, "PodSecurity") {
		text += "; choose a namespace with the Pod Security level privileged with --system-namespace, or label " + namespace
	}
	return text
}

// delete also runs after an interrupt: the pod must not stay.
func (p *Prober) delete(ctx context.Context, pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), podCleanup)
	defer cancel()
	now := int64(0)
	_ = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := p.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err), nil
	})
}

// await polls: a watch needs one more right.
func (p *Prober) await(ctx context.Context, created *corev1.Pod) (nodereport.Report, error) {
	var report nodereport.Report
	last := created
	err := wait.PollUntilContextTimeout(ctx, pollInterval, podDeadline, true, func(ctx context.Context) (bool, error) {
		pod, err := p.Client.CoreV1().Pods(created.Namespace).Get(ctx, created.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			return false, err
		case err != nil:
			return false, nil //nolint:nilerr // the next poll may succeed
		}
		last = pod
		var ended bool
		report, ended, err = reportOf(pod)
		return ended, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return report, fmt.Errorf("pod %s did not end within %s: %s", created.Name, podDeadline, inspect.PodProblem(last))
	}
	return report, err
}

// hopeless are the reasons of containers that do not start by waiting.
var hopeless = map[string]bool{
	"ErrImagePull": true, "ImagePullBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true,
	"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true,
}

// reportOf reads the termination message of a pod that has ended.
func reportOf(pod *corev1.Pod) (report nodereport.Report, over bool, err error) {
	for _, status := range pod.Status.ContainerStatuses {
		ended := status.State.Terminated
		switch {
		case status.State.Waiting != nil && hopeless[status.State.Waiting.Reason]:
			return report, true, errors.New(inspect.PodProblem(pod))
		case ended == nil:
		case ended.ExitCode != 0:
			return report, true, fmt.Errorf("the program ended with code %d: %s %s; is the image the node agent's, of the plugin's version?", ended.ExitCode, ended.Reason, ended.Message)
		default:
			if err := json.Unmarshal([]byte(ended.Message), &report); err != nil {
				return report, true, fmt.Errorf("the report cannot be read: %w", err)
			}
			return report, true, nil
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return report, true, fmt.Errorf("the pod failed: %s %s", pod.Status.Reason, pod.Status.Message)
	}
	return report, false, nil
}

// pod names its node, so that no scheduler keeps it waiting. It may only read the node's files, and use its network.
func (p *Prober) pod(node, request string) *corev1.Pod {
	no, yes, grace, deadline := false, true, int64(1), int64(podDeadline/time.Second)
	user := int64(65532)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: podPrefix, Namespace: p.Namespace,
			Labels: map[string]string{wellknown.LabelAppComponent: partPreflight, wellknown.LabelManagedBy: "kubectl-efs-stunnel"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, DNSPolicy: corev1.DNSDefault, RestartPolicy: corev1.RestartPolicyNever,
			ActiveDeadlineSeconds: &deadline, TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken: &no, EnableServiceLinks: &no, ImagePullSecrets: p.PullSecrets,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				// With SELinux, no other container may read the node's files.
				SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"},
			},
			Containers: []corev1.Container{{
				Name: containerName, Image: p.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"/usr/local/bin/nodeagent", nodereport.Command, request},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
				}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: hostVolume, MountPath: hostPath, ReadOnly: true}, {Name: "tmp", MountPath: "/tmp"}},
			}},
			// The root directory: any other path would be created where it does not exist.
			Volumes: []corev1.Volume{
				{Name: hostVolume, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			},
		},
	}
}
