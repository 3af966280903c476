//go:build integration

package integration_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

const (
	firstTunnelPort = wellknown.DefaultBasePort
	lastTunnelPort  = firstTunnelPort + wellknown.DefaultPortCount - 1
)

// portPod has a container with some ports.
func portPod(ports []corev1.ContainerPort, edits ...func(*corev1.PodSpec)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "container", Image: "image", Ports: ports}}},
	}
	for _, edit := range edits {
		edit(&pod.Spec)
	}
	return pod
}

func hostPort(ports ...int32) (all []corev1.ContainerPort) {
	for _, port := range ports {
		all = append(all, corev1.ContainerPort{ContainerPort: 2049, HostPort: port})
	}
	return all
}

func onHostNetwork(spec *corev1.PodSpec) { spec.HostNetwork = true }

// toInit moves the ports to an init container.
func toInit(policy *corev1.ContainerRestartPolicy) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		init := corev1.Container{Name: "init", Image: "image", Ports: spec.Containers[0].Ports, RestartPolicy: policy}
		spec.Containers[0].Ports, spec.InitContainers = nil, []corev1.Container{init}
	}
}

func TestPodsCannotTakeTunnelPorts(t *testing.T) {
	env := newEnvWithPolicies(t)
	create := func(ctx context.Context, pod *corev1.Pod) error {
		_, err := env.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, dryRun())
		return err
	}
	for name, pod := range map[string]*corev1.Pod{
		"the first port":       portPod(hostPort(firstTunnelPort)),
		"the last port":        portPod(hostPort(lastTunnelPort)),
		"the second of two":    portPod(hostPort(8080, 20500)),
		"of one address":       portPod([]corev1.ContainerPort{{ContainerPort: 2049, HostPort: 20500, HostIP: "127.0.0.1"}}),
		"on the host network":  portPod([]corev1.ContainerPort{{ContainerPort: 20500}}, onHostNetwork),
		"of an init container": portPod(hostPort(20500), toInit(nil)),
		"of a sidecar":         portPod(hostPort(20500), toInit(new(corev1.ContainerRestartPolicyAlways))),
	} {
		t.Run(name, func(*testing.T) {
			waitForRefusal(env, "host ports 20490 to 21489 are those of efs-stunnel", func(ctx context.Context) error { return create(ctx, pod) })
		})
	}
	for name, pod := range map[string]*corev1.Pod{
		"no ports":                    portPod(nil),
		"the port in its own network": portPod([]corev1.ContainerPort{{ContainerPort: 20500}}),
		"the port below":              portPod(hostPort(firstTunnelPort - 1)),
		"the port above":              portPod(hostPort(lastTunnelPort + 1)),
		"UDP":                         portPod([]corev1.ContainerPort{{ContainerPort: 53, HostPort: 20500, Protocol: corev1.ProtocolUDP}}),
		"host network, other ports":   portPod([]corev1.ContainerPort{{ContainerPort: 9100}}, onHostNetwork),
		"host network, no ports":      portPod(nil, onHostNetwork),
		"an init container":           portPod(hostPort(8080), toInit(nil)),
	} {
		if err := create(t.Context(), pod); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEphemeralContainersHaveNoPorts: so no policy has to check them.
func TestEphemeralContainersHaveNoPorts(t *testing.T) {
	env := newEnv(t)
	pods := env.Client.CoreV1().Pods(metav1.NamespaceDefault)
	pod := portPod(nil)
	pod.Name = "with-ephemeral-container"
	pod, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pods.Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Error(err)
		}
	})
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: "image", Ports: hostPort(20500), TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways,
	}}}
	waitForRefusal(env, "spec.ephemeralContainers[0].ports: Forbidden", func(ctx context.Context) error {
		_, err := pods.UpdateEphemeralContainers(ctx, pod.Name, pod, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

func portService(ports ...corev1.ServicePort) *corev1.Service {
	for i := range ports {
		ports[i].Name, ports[i].TargetPort = string(rune('a'+i)), intstr.FromInt32(2049)
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "service-"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"a": "b"}, Ports: ports},
	}
}

func nodePort(port int32) corev1.ServicePort { return corev1.ServicePort{Port: port, NodePort: port} }

// healthChecked returns a load balancer with an ordinary node port, and another one for health checks.
func healthChecked(port int32) *corev1.Service {
	service := portService(corev1.ServicePort{Port: 80, NodePort: 31080})
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	service.Spec.HealthCheckNodePort = port
	return service
}

func TestServicesCannotTakeTunnelPorts(t *testing.T) {
	old := oldService(t)
	env := newEnvWithPolicies(t)
	services := env.Client.CoreV1().Services(metav1.NamespaceDefault)
	const text = "node ports 20490 to 21489 are those of efs-stunnel"
	for name, service := range map[string]*corev1.Service{
		"the first port":    portService(nodePort(firstTunnelPort)),
		"the last port":     portService(nodePort(lastTunnelPort)),
		"the second of two": portService(nodePort(31000), nodePort(20500)),
		"health checks":     healthChecked(20500),
	} {
		t.Run(name, func(*testing.T) {
			waitForRefusal(env, text, func(ctx context.Context) error {
				_, err := services.Create(ctx, service, dryRun())
				return err
			})
		})
	}
	udp := nodePort(20500)
	udp.Protocol = corev1.ProtocolUDP
	headless := portService(corev1.ServicePort{Port: 20500})
	headless.Spec.Type, headless.Spec.ClusterIP = corev1.ServiceTypeClusterIP, corev1.ClusterIPNone
	for name, service := range map[string]*corev1.Service{
		"the port below":               portService(nodePort(firstTunnelPort - 1)),
		"the port above":               portService(nodePort(lastTunnelPort + 1)),
		"UDP":                          portService(udp),
		"other health checks":          healthChecked(31090),
		"the port in its own network":  headless,
		"a name of another service":    {ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}},
		"no ports and no cluster's IP": {ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
	} {
		if _, err := services.Create(t.Context(), service, dryRun()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	expectOldServiceEditable(env, old, text)
	expectNoTunnelPortInTwoSteps(env, udp, text)
}

// expectNoTunnelPortInTwoSteps: a port of UDP, which is allowed, does not become one of TCP.
func expectNoTunnelPortInTwoSteps(env *testenv.Env, udp corev1.ServicePort, text string) {
	env.Helper()
	services := env.Client.CoreV1().Services(metav1.NamespaceDefault)
	service, err := services.Create(env.Context(), portService(udp), metav1.CreateOptions{})
	if err != nil {
		env.Fatal(err)
	}
	env.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(env.Context()), service.Name, metav1.DeleteOptions{}); err != nil {
			env.Error(err)
		}
	})
	service.Spec.Ports[0].Protocol = corev1.ProtocolTCP
	waitForRefusal(env, text, func(ctx context.Context) error {
		_, err := services.Update(ctx, service, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// external returns a Service that takes connections to some addresses.
func external(port corev1.ServicePort, ips ...string) *corev1.Service {
	service := portService(port)
	service.Spec.Type, service.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, ips
	return service
}

// TestServicesCannotTakeMountTargets: kube-proxy would redirect the nodes' own connections.
func TestServicesCannotTakeMountTargets(t *testing.T) {
	nfs, udp := corev1.ServicePort{Port: 2049}, corev1.ServicePort{Port: 2049, Protocol: corev1.ProtocolUDP}
	env := newEnv(t)
	services := env.Client.CoreV1().Services(metav1.NamespaceDefault)
	var old *corev1.Service
	env.Eventually("the policy of an earlier test is deleted", func(ctx context.Context) (err error) {
		old, err = services.Create(ctx, external(nfs, "192.0.2.1"), metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(t.Context()), old.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	env = newEnvWithPolicies(t)
	dryUpdate := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	const text = "a Service with external IPs must not have TCP port 2049"
	waitForRefusal(env, text, func(ctx context.Context) error {
		_, err := services.Create(ctx, external(nfs, "192.0.2.10", "192.0.2.11"), dryRun())
		return err
	})
	for name, service := range map[string]*corev1.Service{
		"another port":    external(corev1.ServicePort{Port: 443}, "192.0.2.10"),
		"UDP":             external(udp, "192.0.2.10"),
		"no external IPs": external(nfs),
	} {
		if _, err := services.Create(t.Context(), service, dryRun()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	changed := old.DeepCopy()
	changed.Labels = map[string]string{"changed": "true"}
	if _, err := services.Update(t.Context(), changed, dryUpdate); err != nil {
		t.Errorf("a Service that had its address before the policy cannot be changed: %v", err)
	}
	changed.Spec.ExternalIPs = append(changed.Spec.ExternalIPs, "192.0.2.10")
	waitForRefusal(env, text, func(ctx context.Context) error {
		_, err := services.Update(ctx, changed, dryUpdate)
		return err
	})
}

// oldService is created before the policy.
func oldService(t *testing.T) *corev1.Service {
	t.Helper()
	env := newEnv(t)
	services := env.Client.CoreV1().Services(metav1.NamespaceDefault)
	var old *corev1.Service
	env.Eventually("the policy of an earlier test is deleted", func(ctx context.Context) (err error) {
		old, err = services.Create(ctx, portService(nodePort(20999)), metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(t.Context()), old.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return old
}

// expectOldServiceEditable: a person can correct and delete the Service, but it gets no other port of a
// tunnel.
func expectOldServiceEditable(env *testenv.Env, old *corev1.Service, text string) {
	env.Helper()
	services, dryUpdate := env.Client.CoreV1().Services(old.Namespace), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	changed := old.DeepCopy()
	changed.Labels = map[string]string{"changed": "true"}
	if _, err := services.Update(env.Context(), changed, dryUpdate); err != nil {
		env.Errorf("a Service that had its port before the policy cannot be changed: %v", err)
	}
	changed.Spec.Ports[0].NodePort = 20998
	waitForRefusal(env, text, func(ctx context.Context) error {
		_, err := services.Update(ctx, changed, dryUpdate)
		return err
	})
}
