package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Causes of results about the cluster.
const (
	VersionTooOld      inspect.Cause = "KubernetesTooOld"
	VersionNotTested   inspect.Cause = "KubernetesNotTested"
	NodePortsMeet      inspect.Cause = "NodePortRangeMeetsTunnels"
	NodePortsUnknown   inspect.Cause = "NodePortRangeUnknown"
	PortInUse          inspect.Cause = "PortInUse"
	AdmissionLevel     inspect.Cause = "AdmissionLevel"
	NamespaceMissing   inspect.Cause = "NamespaceMissing"
	NodesNotExamined   inspect.Cause = "NodesNotExamined"
	NoMountHelper      inspect.Cause = "NoMountHelper"
	NotServed          inspect.Cause = "NodeNotServed"
	ProcessorNotServed inspect.Cause = "ProcessorNotServed"
	LoopbackReachable  inspect.Cause = "LoopbackReachable"
)

// Versions of Kubernetes, as docs/reference/limits.md has them.
const firstTested, lastTested, oldestVersion = "1.34", "1.37", "1.30"

const enforceLabel = "pod-security.kubernetes.io/enforce"

// Check draws the conclusions.
func Check(f *Facts) inspect.Diagnosis {
	checks := []inspect.Examined{
		{Check: "Kubernetes", Results: []inspect.Result{f.version()}},
		{Check: "namespace", Results: f.namespace()},
		{Check: "NodePorts", Results: f.nodePorts()},
		{Check: "ports in use", Results: append(f.unreadOf("services", "pods"), f.portsInUse()...)},
		{Check: "nodes", Results: append(f.unreadOf("nodes"), f.nodes()...)},
		{Check: "host names", Results: f.hostNames()},
	}
	if results := append(f.unreadOf("storageclasses.storage.k8s.io"), f.accessPoints()...); len(results) > 0 {
		checks = append(checks, inspect.Examined{Check: "access points", Results: results})
	}
	return inspect.NewDiagnosis("the cluster", checks)
}

func note(cause inspect.Cause, object, message, remedy string) inspect.Result {
	return inspect.Result{Level: inspect.Note, Cause: cause, Object: object, Message: message, Remedy: remedy}
}

func problem(cause inspect.Cause, object, message, remedy string) inspect.Result {
	return inspect.Result{Level: inspect.Problem, Cause: cause, Object: object, Message: message, Remedy: remedy}
}

// unreadOf returns a result for each of some resources whose checks are incomplete.
func (f *Facts) unreadOf(resources ...string) (results []inspect.Result) {
	for _, unread := range f.Unread {
		if slices.Contains(resources, unread.Resource) {
			results = append(results, inspect.Incomplete(unread, unread.Resource))
		}
	}
	return results
}

func (f *Facts) version() inspect.Result {
	const object = "Kubernetes"
	have, err := version.ParseGeneric(f.Version)
	if err != nil {
		return note(VersionNotTested, object, fmt.Sprintf("its version %q cannot be read", f.Version), "")
	}
	first, last := version.MustParseGeneric(firstTested), version.MustParseGeneric(lastTested)
	switch {
	case have.LessThan(version.MustParseGeneric(oldestVersion)):
		return problem(VersionTooOld, object, fmt.Sprintf("version %s: the components admission and startup-taint need %s", f.Version, oldestVersion),
			"upgrade the cluster, or install without these components and try it first: "+wellknown.DocsURL+"reference/limits.md")
	case have.LessThan(first) || !have.LessThan(last.OffsetMinor(1)):
		return note(VersionNotTested, object, fmt.Sprintf("version %s; tests have run on %s to %s", f.Version, firstTested, lastTested), "")
	}
	return inspect.Fine(object, "version %s", f.Version)
}

func (f *Facts) namespace() []inspect.Result {
	object, label := "namespace "+f.Namespace, "kubectl label --overwrite namespace "+f.Namespace+" "+enforceLabel+"=privileged"
	if unread := f.unreadOf("namespaces"); len(unread) > 0 {
		return unread
	}
	result := inspect.Fine(object, "its Pod Security level is privileged")
	switch level := f.Labels[enforceLabel]; {
	case f.Labels == nil:
		result = note(NamespaceMissing, object, "it does not exist yet; the manifests create it with the Pod Security level privileged", "")
	case level == "":
		result = note(AdmissionLevel, object, "it has no Pod Security level of its own; the cluster's default counts", label)
	case level != "privileged":
		result = problem(AdmissionLevel, object, "its Pod Security level is "+level+", which refuses the node agents: they use the host's network", label)
	}
	return []inspect.Result{result}
}

func (f *Facts) nodePorts() []inspect.Result {
	const object = "NodePort services"
	if unread := f.unreadOf("pods"); len(unread) > 0 {
		return unread
	}
	span := cmp.Or(f.NodePorts, defaultNodePorts())
	switch {
	case span.Last >= f.Ports.First && span.First <= f.Ports.Last:
		return []inspect.Result{problem(NodePortsMeet, object, fmt.Sprintf("their range, %s, meets the tunnels' ports, %s: a Service could get the traffic of a tunnel", span, f.Ports),
			"set --base-stunnel-port and --node-port-range of the manager: "+wellknown.DocsURL+"tasks/node-ports.md")}
	case f.NodePorts == ports.Span{}:
		return []inspect.Result{note(NodePortsUnknown, object, f.unknownNodePorts(),
			"compare kube-apiserver's "+nodePortFlag+" with the tunnels' ports, "+f.Ports.String())}
	}
	return []inspect.Result{inspect.Fine(object, "their range, %s, is apart from the tunnels' ports, %s", span, f.Ports)}
}

// unknownNodePorts returns what Services show of the range of node ports, which no object has.
func (f *Facts) unknownNodePorts() string {
	for _, service := range f.Services {
		for _, port := range service.Spec.Ports {
			if port.NodePort != 0 && !defaultNodePorts().Contains(int(port.NodePort)) {
				return fmt.Sprintf("their range is not the default, as service %s/%s has nodePort %d; no object shows which it is", service.Namespace, service.Name, port.NodePort)
			}
		}
	}
	return fmt.Sprintf("no object shows their range; the default, %s, is apart from the tunnels' ports", defaultNodePorts())
}

func (f *Facts) portsInUse() (results []inspect.Result) {
	check := func(object, kind string, port int) {
		if f.Ports.Contains(port) || port == wellknown.AgentHTTPPort { // of the agents' health and metrics
			results = append(results, problem(PortInUse, object, fmt.Sprintf("its %s %d is one of the tunnels' ports", kind, port),
				"give it another port, or the tunnels other ports: --base-stunnel-port of the manager"))
		}
	}
	f.eachPort(check)
	if len(results) == 0 {
		results = append(results, inspect.Fine("ports", "no Service or pod that can be seen has one of %s, or %d", f.Ports, wellknown.AgentHTTPPort))
	}
	return results
}

// eachPort has a function called with each port of the nodes that an object shows to be in use.
func (f *Facts) eachPort(use func(object, kind string, port int)) {
	for _, service := range f.Services {
		for _, port := range service.Spec.Ports {
			use("service "+service.Namespace+"/"+service.Name, "nodePort", int(port.NodePort))
		}
	}
	for _, pod := range f.Pods {
		for _, port := range hostPorts(pod) {
			if pod.Namespace != f.Own {
				use("pod "+pod.Namespace+"/"+pod.Name, "hostPort", port)
			}
		}
	}
}

func (f *Facts) nodes() (results []inspect.Result) {
	for _, node := range f.Nodes {
		results = append(results, f.node(node)...)
	}
	if len(f.Nodes) > 0 && f.Reports == nil {
		results = append(results, note(NodesNotExamined, "nodes", "mount.nfs, the kernel's NFS client, ephemeral ports, SELinux and mount targets were not examined",
			"kubectl efs-stunnel preflight --nodes"))
	}
	return results
}

func (f *Facts) hostNames() []inspect.Result {
	results := inspect.HostNames(f.Nodes, f.hostName)
	if len(results) == 0 && len(f.Nodes) > 0 {
		results = append(results, inspect.Fine("host names", "no two nodes have the same"))
	}
	return results
}

// hostName returns the name that a node's pod has read, or else the kubelet's label, which may differ from it.
func (f *Facts) hostName(node *corev1.Node) string {
	if _, ok := isServed(node); !ok {
		return ""
	}
	return cmp.Or(f.Reports[node.Name].HostName, node.Labels[corev1.LabelHostname])
}

// isServed reports whether an agent can run on a node, and why not.
func isServed(node *corev1.Node) (why string, ok bool) {
	switch {
	case node.Labels["eks.amazonaws.com/compute-type"] == "fargate":
		return "it is of EKS Fargate, which is not supported: its pods get no volumes of efs-stunnel", false
	case node.Labels["eks.amazonaws.com/compute-type"] == "hybrid":
		return "it is a hybrid node of EKS, which the overlay eks leaves out: it is outside of AWS, and most such nodes reach no mount target", false
	case node.Status.NodeInfo.OperatingSystem != "" && node.Status.NodeInfo.OperatingSystem != "linux":
		return "its operating system is " + node.Status.NodeInfo.OperatingSystem + ", which is not supported: its pods get no volumes of efs-stunnel", false
	}
	return "", true
}

// node returns the results for a node, from its object and, if one ran, from its pod's report.
func (f *Facts) node(node *corev1.Node) []inspect.Result {
	object, info := "node "+node.Name, node.Status.NodeInfo
	if why, ok := isServed(node); !ok {
		return []inspect.Result{note(NotServed, object, why, "")}
	}
	var results []inspect.Result
	if !slices.Contains([]string{"", "amd64", "arm64"}, info.Architecture) {
		results = append(results, problem(ProcessorNotServed, object, "there is no image for processors of type "+info.Architecture, "build one, or keep the agents off the node"))
	}
	if isOlder(info.KernelVersion, "5.7") {
		results = append(results, note(LoopbackReachable, object, "its kernel, "+info.KernelVersion+", is older than 5.7: packets from outside to 127.0.0.0/8 must be dropped",
			"kubelet and kube-proxy do so; check it if another proxy replaces kube-proxy: "+wellknown.DocsURL+"concepts/isolation.md"))
	}
	report, ok := f.Reports[node.Name]
	switch {
	case ok:
		results = append(results, f.reported(node, report)...)
	case strings.HasPrefix(info.OSImage, "Bottlerocket"):
		results = append(results, problem(NoMountHelper, object, "it runs "+info.OSImage+", which is not known to mount NFS volumes of Kubernetes",
			"use nodes of another operating system, or test one first: kubectl efs-stunnel preflight --nodes"))
	}
	if len(results) == 0 {
		results = append(results, inspect.Fine(object, "%s", strings.Join([]string{info.OSImage, info.KernelVersion, info.Architecture}, ", ")))
	}
	return results
}

// isOlder compares the beginning of a kernel's version, as 5.10.223-212.amzn2.
func isOlder(kernel, than string) bool {
	have, err := version.ParseGeneric(kernel)
	return err == nil && have.LessThan(version.MustParseGeneric(than))
}

// Causes of results about nodes that were examined.
const (
	NodeNotExamined       inspect.Cause = "NodeNotExamined"
	NoKernelClient        inspect.Cause = "NoKernelClient"
	PortsAreEphemeral     inspect.Cause = "PortInEphemeralRange"
	SELinuxRefuses        inspect.Cause = "SELinuxRefusesNFS"
	MountTargetNotReached inspect.Cause = "MountTargetNotReached"
	EFSNotListed          inspect.Cause = "EFSNotListed"
)

func (f *Facts) reported(node *corev1.Node, r NodeReport) []inspect.Result {
	object := "node " + node.Name
	if r.Why != "" {
		return []inspect.Result{problem(NodeNotExamined, object, "it could not be examined: "+r.Why, "what the message says; kubectl describe node "+node.Name)}
	}
	results := slices.Concat(mountHelper(object, node.Status.NodeInfo.OSImage, r.Report), f.ephemeral(object, r.Report), selinux(object, r.Report),
		servers(object, node.Labels[corev1.LabelTopologyZone], r.Report), aws(object, r.Report))
	if !slices.ContainsFunc(results, func(r inspect.Result) bool { return r.Level == inspect.Problem }) {
		text := fmt.Sprintf("%s, kernel %s (NFSv4 %s)", cmp.Or(strings.Join(r.MountNFS, " "), "no mount.nfs"), r.Kernel, cmp.Or(r.NFS4, "not found"))
		if r.Answered > 0 {
			text += fmt.Sprintf(", %d mount targets answer", r.Answered)
		}
		results = append(results, inspect.Fine(object, "%s", text))
	}
	return results
}

// mountHelper returns the results about mount.nfs, which the kubelet runs, and the kernel's NFS client.
func mountHelper(object, image string, r nodereport.Report) (results []inspect.Result) {
	switch {
	case strings.HasPrefix(image, "Bottlerocket"):
		results = append(results, problem(NoMountHelper, object, "it runs "+image+", which is not known to mount NFS volumes of Kubernetes, with mount.nfs or without",
			"use nodes of another operating system, or test a mount first: "+wellknown.DocsURL+"reference/operating-systems.md"))
	case len(r.MountNFS) > 0:
	case strings.HasPrefix(image, "Talos"), strings.HasPrefix(image, "Container-Optimized OS"):
		results = append(results, note(NoMountHelper, object, "it runs "+image+", whose kubelet has a mount.nfs of its own, which was not examined", ""))
	default:
		results = append(results, problem(NoMountHelper, object, "it has no mount.nfs ("+image+")",
			"install nfs-utils (Amazon Linux, RHEL family) or nfs-common (Debian, Ubuntu) in the node's image"))
	}
	if r.NFS4 == "" {
		results = append(results, problem(NoKernelClient, object, "its kernel, "+r.Kernel+", has no NFSv4 client: neither loaded nor among its modules",
			"on the node: modprobe nfsv4; if there is no module, use another kernel"))
	}
	return results
}

func (f *Facts) ephemeral(object string, r nodereport.Report) []inspect.Result {
	parsed, err := ports.ParseEphemeral(r.PortRange, r.Reserved)
	if err != nil {
		return []inspect.Result{note(PortsAreEphemeral, object, "its range of ephemeral ports cannot be read: "+err.Error(), "")}
	}
	var given []int
	for port := f.Ports.First; port <= f.Ports.Last; port++ {
		if parsed.Contains(port) {
			given = append(given, port)
		}
	}
	if len(given) > 0 {
		return []inspect.Result{problem(PortsAreEphemeral, object,
			fmt.Sprintf("its kernel may give %d of the tunnels' ports, the first is %d, to any process (ip_local_port_range is %s)", len(given), given[0], r.PortRange),
			"on the node: sysctl -w net.ipv4.ip_local_reserved_ports="+f.Ports.String())}
	}
	return nil
}

func selinux(object string, r nodereport.Report) (results []inspect.Result) {
	for _, name := range slices.Sorted(maps.Keys(r.Booleans)) {
		if r.Enforcing && !r.Booleans[name] {
			results = append(results, problem(SELinuxRefuses, object, "SELinux is enforcing, and its boolean "+name+" is off: containers may not use NFS volumes",
				"on the node: setsebool -P "+name+" 1"))
		}
	}
	return results
}

func reachRemedy(reason string) string {
	if reason == nodereport.ReasonName {
		return "enable DNS in the VPC, create a mount target in the node's zone, and check the id and the region"
	}
	return tunnelspec.ProbeRemedy(reason)
}

func servers(object, zone string, r nodereport.Report) (results []inspect.Result) {
	from := "from zone " + cmp.Or(zone, "(unknown)")
	for _, failure := range r.Failures {
		results = append(results, problem(MountTargetNotReached, object,
			fmt.Sprintf("%s at %s is not reached %s (%s): %s", failure.FileSystem, cmp.Or(failure.Address, "no address"), from, failure.Reason, failure.Error),
			reachRemedy(failure.Reason)))
	}
	if more := r.Failed - len(r.Failures); more > 0 {
		results = append(results, problem(MountTargetNotReached, object, fmt.Sprintf("%d more mount targets are not reached %s", more, from), "as above"))
	}
	return results
}

// aws returns notes only: the manager usually has a role of its own.
func aws(object string, r nodereport.Report) []inspect.Result {
	switch {
	case r.AWS == nil:
		return nil
	case r.AWS.Error != "":
		return []inspect.Result{note(EFSNotListed, object, "the node's own identity cannot list file systems: "+r.AWS.Error,
			"give the manager a role: "+wellknown.DocsURL+"tasks/aws-permissions.md; without one it has the node's")}
	}
	return []inspect.Result{note("", object, fmt.Sprintf("the node's own identity may list file systems, and sees %d", r.AWS.FileSystems), "")}
}
