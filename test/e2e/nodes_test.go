//go:build e2e

package e2e

import (
	"fmt"
	"strings"
)

// supervisorHasNoIdentity: stunnel and its supervisor, which face the network, have neither the token for
// the apiserver nor AWS credentials. The agent's container has the token.
func supervisorHasNoIdentity(l *lab) {
	const node = "node-1"
	supervisor, agent := l.onNode(node, supervisorOf), l.onNode(node, "pgrep -ox nodeagent")
	if output := l.onNode(node, "grep -F secrets /proc/"+supervisor+"/mountinfo || true"); output != "" {
		l.Errorf("mounted into the supervisor's container:\n%s", output)
	}
	// Names only: values do not belong into a log. On AWS the webhook for roles would add some; the
	// lab's nodes have an identity by instance metadata only, which the agent's network reaches.
	if output := l.onNode(node, "tr '\\0' '\\n' < /proc/"+supervisor+"/environ | cut -d = -f 1 | grep -E 'AWS|TOKEN|SECRET|CREDENTIAL' || true"); output != "" {
		l.Errorf("in the supervisor's environment:\n%s", output)
	}
	const token = "/root/var/run/secrets/kubernetes.io/serviceaccount/token"
	// Not even root may follow the links in such a folder (fs.protected_symlinks).
	if output := l.onNode(node, "ls -d /proc/"+supervisor+token+" 2> /dev/null || true"); output != "" {
		l.Errorf("in the supervisor's container: %s", output)
	}
	// This proves that the checks above use the right path.
	if output := l.onNode(node, "ls -d /proc/"+agent+token+" || true"); output == "" {
		l.Error("the agent's container has no token at the expected path")
	}
}

// mountOptionsAreMounted: those of a class replace the product's own. The component read-ahead sets the rest.
func mountOptionsAreMounted(l *lab) {
	ns := l.namespace("options")
	const name = "e2e-options"
	l.classes(strings.Replace(classText(name, "default_file_system_id: "+shared), "---\n", "mountOptions: [rsize=65536, acregmax=7]\n---\n", 1), name)
	l.apply(ns, claim("data", name)+pod("persistentVolumeClaim: {claimName: data}", ""))
	data := l.waitForClaim(ns, "data")
	l.wait(ns, "condition=Ready", "pod/user")
	node := l.kubectl("-n", ns, "get", "pod", "user", "-o", "jsonpath={.spec.nodeName}")
	mounts := l.onNode(node, "grep '^127.0.0.1:"+data.path+" ' /proc/mounts")
	for _, option := range []string{",rsize=65536,", ",acregmax=7,", ",hard,", ",vers=4.1,"} {
		if !strings.Contains(mounts, option) {
			l.Errorf("the node's mount lacks %s: %s", strings.Trim(option, ","), mounts)
		}
	}
	l.eventually("the mount to read 15 MiB ahead", func() string {
		directory := l.onNode(node, "grep '^127.0.0.1:"+data.path+" ' /proc/mounts | cut -d' ' -f2")
		if kib := l.onNode(node, "cat /sys/class/bdi/$(mountpoint -d "+directory+")/read_ahead_kb"); kib != "15360" {
			return kib + " KiB"
		}
		return ""
	})
}

// hijacker is a pod with a hostPort, which receives what the node sends to that port.
const hijacker = `apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: registry.lab:5000/lab/toolbox:1
    command: [httpd, -f, -p, "2049", -h, /tmp]
    ports: [{containerPort: 2049, hostPort: %d}]
---
`

// hijackedPortIsReported: the policy refuses a pod with a tunnel's port as its hostPort. Where the policy
// does not deny, the agent reports the redirected port, and its end.
func hijackedPortIsReported(l *lab) {
	const node = "node-1"
	ns, port := l.namespace("hijack"), l.portOf(archive)
	text := pinned(node, fmt.Sprintf(hijacker, port))
	output, err := l.tryKubectl(text, "-n", ns, "apply", "-f", "-")
	if err == nil || !strings.Contains(output, "are those of efs-stunnel") {
		l.Fatalf("a pod with hostPort %d was not refused by the policy, %v: %s", port, err, output)
	}
	enforce := func(action string) {
		l.kubectl("patch", "validatingadmissionpolicybinding", "efs-stunnel-host-ports", "--type=merge",
			"-p", fmt.Sprintf(`{"spec": {"validationActions": [%q]}}`, action))
	}
	l.Cleanup(func() { enforce("Deny") })
	enforce("Audit")
	l.eventually("the apiserver to admit the pod", func() string {
		if output, err := l.tryKubectl(text, "-n", ns, "apply", "-f", "-"); err != nil {
			return output
		}
		return ""
	})
	l.wait(ns, "condition=Ready", "pod/user")
	restore := l.redirect(node, port, l.kubectl("-n", ns, "get", "pod", "user", "-o", "jsonpath={.status.podIP}"))
	l.Cleanup(restore)
	l.connect(node, port) // unused tunnels are not probed through their ports
	l.waitForEvent("default", node, "PortHijacked", fmt.Sprintf("hostPort %d", port))
	restore()
	l.eventually("the agent to observe the end", func() string {
		sample := fmt.Sprintf(`efs_stunnel_node_tunnel_hijacked{tunnel="%s"}`, archive)
		if output := l.agentMetrics(node, sample); output != sample+" 0" {
			return "the metric is " + output
		}
		return ""
	})
	l.disconnect(node)
}

// redirect redirects a node's port as the plugin portmap does for a hostPort: the lab's network
// configuration has the plugin bridge only.
func (l *lab) redirect(node string, port int, pod string) (restore func()) {
	l.Helper()
	rules := []string{
		fmt.Sprintf("OUTPUT -d 127.0.0.1/32 -p tcp --dport %d -j DNAT --to-destination %s:2049", port, pod),
		fmt.Sprintf("POSTROUTING -s 127.0.0.1/32 -d %s/32 -p tcp --dport 2049 -j MASQUERADE", pod),
	}
	var insert, remove []string
	for _, rule := range rules { // a line may run twice on a busy host
		insert = append(insert, "{ iptables -w -t nat -C "+rule+" 2> /dev/null || iptables -w -t nat -I "+rule+"; }")
		remove = append(remove, "while iptables -w -t nat -D "+rule+" 2> /dev/null; do :; done")
	}
	// kube-proxy may have allowed this for all interfaces, portmap does for that of the pods only.
	l.onNode(node, "echo 1 > /proc/sys/net/ipv4/conf/cni0/route_localnet && "+strings.Join(insert, " && "))
	return func() {
		l.Helper()
		l.onNode(node, strings.Join(remove, "; ")+"; echo 0 > /proc/sys/net/ipv4/conf/cni0/route_localnet")
	}
}

// connect opens a connection to each of a node's own ports, for some minutes or until disconnect.
func (l *lab) connect(node string, ports ...int) {
	l.Helper()
	for _, port := range ports {
		l.onNode(node, fmt.Sprintf("timeout 600 socat -u TCP4:127.0.0.1:%d STDOUT < /dev/null > /dev/null 2>&1 &", port))
	}
}

func (l *lab) disconnect(node string) {
	l.Helper()
	l.onNode(node, "pkill -x socat || true")
}

// agentMetrics returns the metrics of a node's agent with a prefix.
func (l *lab) agentMetrics(node, prefix string) string {
	l.Helper()
	return l.onNode(node, "busybox wget -q -O - http://127.0.0.1:20488/metrics | grep '^"+prefix+"' || true")
}
