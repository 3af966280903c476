package preflight

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

var tunnels = ports.Span{First: 20490, Last: 21489}

func newNode(name, image string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "us-east-1a"}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
			OSImage: image, KernelVersion: "6.1.0-40-amd64", OperatingSystem: "linux", Architecture: "amd64",
		}},
	}
}

// suitable returns a cluster without a problem, of which one node was examined.
func suitable() *Facts {
	return &Facts{
		Options:   Options{Namespace: "efs-stunnel", Ports: tunnels},
		Version:   "v1.36.2",
		Labels:    map[string]string{enforceLabel: "privileged"},
		Nodes:     []*corev1.Node{newNode("n1", "Amazon Linux 2023")},
		NodePorts: ports.Span{First: 30000, Last: 32767},
		Reports: map[string]NodeReport{"n1": {Report: nodereport.Report{
			MountNFS: []string{"/sbin/mount.nfs"}, NFS4: "module", Kernel: "6.1.0", PortRange: "32768 60999", Enforcing: true,
			Booleans: map[string]bool{"virt_use_nfs": true}, Answered: 2,
		}}},
	}
}

func report(f *Facts, edit func(*NodeReport)) {
	r := f.Reports["n1"]
	edit(&r)
	f.Reports["n1"] = r
}

func service(port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{NodePort: port}}},
	}
}

func podWith(namespace string, port int32) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: port}}}}},
	}
}

func TestCheck(t *testing.T) {
	const (
		ok, note, unknown, bad = inspect.OK, inspect.Note, inspect.Unknown, inspect.Problem
	)
	tests := map[string]struct {
		edit  func(*Facts)
		level inspect.Level
		cause inspect.Cause
	}{
		"suitable":           {func(*Facts) {}, ok, ""},
		"an old version":     {func(f *Facts) { f.Version = "v1.29.9-eks-1234" }, bad, VersionTooOld},
		"the oldest version": {func(f *Facts) { f.Version = "v1.30.0" }, note, VersionNotTested},
		"an older one":       {func(f *Facts) { f.Version = "v1.33.9" }, note, VersionNotTested},
		"the first tested":   {func(f *Facts) { f.Version = "v1.34.0" }, ok, ""},
		"the last tested":    {func(f *Facts) { f.Version = "v1.37.9" }, ok, ""},
		"a newer version":    {func(f *Facts) { f.Version = "v1.38.0" }, note, VersionNotTested},
		"nodes with one host name": {func(f *Facts) {
			f.Nodes = append(f.Nodes, newNode("n2", "Amazon Linux 2023"))
			f.Nodes[0].Labels[corev1.LabelHostname], f.Nodes[1].Labels[corev1.LabelHostname] = "n1", "n2"
			report(f, func(r *NodeReport) { r.HostName = "localhost" })
			f.Reports["n2"] = f.Reports["n1"]
		}, bad, inspect.HostNameShared},
		"a version without numbers": {func(f *Facts) { f.Version = "new" }, note, VersionNotTested},
		"no namespace":              {func(f *Facts) { f.Labels = nil }, note, NamespaceMissing},
		"no level":                  {func(f *Facts) { f.Labels = map[string]string{} }, note, AdmissionLevel},
		"another level":             {func(f *Facts) { f.Labels[enforceLabel] = "baseline" }, bad, AdmissionLevel},
		"the namespace is unread": {func(f *Facts) {
			f.Labels, f.Unread = nil, []inspect.Unread{{Verb: "get", Resource: "namespaces"}}
		}, unknown, inspect.RightMissing},
		"NodePorts among the tunnels": {func(f *Facts) { f.NodePorts = ports.Span{First: 20000, Last: 20490} }, bad, NodePortsMeet},
		"NodePorts after the tunnels": {func(f *Facts) { f.NodePorts = ports.Span{First: 21490, Last: 22000} }, ok, ""},
		"NodePorts are not known":     {func(f *Facts) { f.NodePorts = ports.Span{} }, note, NodePortsUnknown},
		"default NodePorts, and the tunnels among them": {func(f *Facts) {
			f.NodePorts, f.Ports = ports.Span{}, ports.Span{First: 32767, Last: 33000}
			report(f, func(r *NodeReport) { r.Reserved = "32767-33000" })
		}, bad, NodePortsMeet},
		"a Service has a port":       {func(f *Facts) { f.Services = []*corev1.Service{service(21489)} }, bad, PortInUse},
		"a Service has another port": {func(f *Facts) { f.Services = []*corev1.Service{service(30000)} }, ok, ""},
		"a pod has a port":           {func(f *Facts) { f.Pods = []*corev1.Pod{podWith("team", 20490)} }, bad, PortInUse},
		"a pod has the agent's port": {func(f *Facts) { f.Pods = []*corev1.Pod{podWith("team", 20488)} }, bad, PortInUse},
		"a pod has another port":     {func(f *Facts) { f.Pods = []*corev1.Pod{podWith("team", 20489)} }, ok, ""},
		"our pod has a port":         {func(f *Facts) { f.Own, f.Pods = "efs", []*corev1.Pod{podWith("efs", 20488)} }, ok, ""},
		"pods are unread": {func(f *Facts) {
			f.Unread = []inspect.Unread{{Verb: "list", Resource: "pods"}}
		}, unknown, inspect.RightMissing},
		"nodes are not examined": {func(f *Facts) { f.Reports = nil }, note, NodesNotExamined},
		"Bottlerocket by name":   {func(f *Facts) { f.Reports, f.Nodes[0].Status.NodeInfo.OSImage = nil, "Bottlerocket OS 1.2" }, bad, NoMountHelper},
		"Bottlerocket, examined": {func(f *Facts) { f.Nodes[0].Status.NodeInfo.OSImage = "Bottlerocket OS 1.2" }, bad, NoMountHelper},
		"Windows":                {func(f *Facts) { f.Nodes[0].Status.NodeInfo.OperatingSystem = "windows" }, note, NotServed},
		"Fargate":                {func(f *Facts) { f.Nodes[0].Labels["eks.amazonaws.com/compute-type"] = "fargate" }, note, NotServed},
		"a hybrid node":          {func(f *Facts) { f.Nodes[0].Labels["eks.amazonaws.com/compute-type"] = "hybrid" }, note, NotServed},
		"another processor":      {func(f *Facts) { f.Nodes[0].Status.NodeInfo.Architecture = "s390x" }, bad, ProcessorNotServed},
		"an old kernel":          {func(f *Facts) { f.Nodes[0].Status.NodeInfo.KernelVersion = "5.6.19-1" }, note, LoopbackReachable},
		"the first kernel":       {func(f *Facts) { f.Nodes[0].Status.NodeInfo.KernelVersion = "5.7.0" }, ok, ""},
		"the pod did not run":    {func(f *Facts) { report(f, func(r *NodeReport) { r.Why = "ImagePullBackOff" }) }, bad, NodeNotExamined},
		"no mount.nfs":           {func(f *Facts) { report(f, func(r *NodeReport) { r.MountNFS = nil }) }, bad, NoMountHelper},
		"no kernel client":       {func(f *Facts) { report(f, func(r *NodeReport) { r.NFS4 = "" }) }, bad, NoKernelClient},
		"ephemeral ports":        {func(f *Facts) { report(f, func(r *NodeReport) { r.PortRange = "1024 65535" }) }, bad, PortsAreEphemeral},
		"reserved ports": {func(f *Facts) {
			report(f, func(r *NodeReport) { r.PortRange, r.Reserved = "1024 65535", "20490-21489" })
		}, ok, ""},
		"no range of ports": {func(f *Facts) { report(f, func(r *NodeReport) { r.PortRange = "" }) }, note, PortsAreEphemeral},
		"SELinux refuses":   {func(f *Facts) { report(f, func(r *NodeReport) { r.Booleans["virt_use_nfs"] = false }) }, bad, SELinuxRefuses},
		"SELinux is not enforced": {func(f *Facts) {
			report(f, func(r *NodeReport) { r.Enforcing, r.Booleans["virt_use_nfs"] = false, false })
		}, ok, ""},
		"a mount target is silent": {func(f *Facts) {
			report(f, func(r *NodeReport) {
				r.Failed = 1
				r.Failures = []nodereport.Failure{{FileSystem: "fs-1", Reason: tunnelspec.ProbeTimeout, Error: "i/o timeout"}}
			})
		}, bad, MountTargetNotReached},
		"the node has no role": {func(f *Facts) { report(f, func(r *NodeReport) { r.AWS = &nodereport.AWS{Error: "AccessDenied"} }) }, note, EFSNotListed},
		"the node has a role":  {func(f *Facts) { report(f, func(r *NodeReport) { r.AWS = &nodereport.AWS{FileSystems: 3} }) }, note, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := suitable()
			tt.edit(f)
			d := Check(f)
			if d.Level != tt.level {
				t.Errorf("level %s, want %s: %+v", d.Level, tt.level, d.Checks)
			}
			if found := find(d, tt.level); found == nil || found.Cause != tt.cause || found.Message == "" {
				t.Errorf("got %+v, want %s", found, tt.cause)
			} else if tt.level == bad && found.Remedy == "" {
				t.Error("no remedy")
			}
		})
	}
}

// find returns the first result of a level.
func find(d inspect.Diagnosis, level inspect.Level) *inspect.Result {
	for _, examined := range d.Checks {
		for _, result := range examined.Results {
			if result.Level == level {
				return &result
			}
		}
	}
	return nil
}

// TestKubeletsWithTheirOwnHelper: the check of the node's files cannot see it.
func TestKubeletsWithTheirOwnHelper(t *testing.T) {
	for _, image := range []string{"Talos (v1.9.1)", "Container-Optimized OS from Google"} {
		f := suitable()
		f.Nodes[0].Status.NodeInfo.OSImage = image
		report(f, func(r *NodeReport) { r.MountNFS = nil })
		if d := Check(f); d.Level != inspect.Note || find(d, inspect.Note).Cause != NoMountHelper {
			t.Errorf("%s: %+v", image, d)
		}
	}
}

func TestEveryReasonOfAFailureHasARemedy(t *testing.T) {
	for _, reason := range []string{
		nodereport.ReasonName, tunnelspec.ProbeTimeout, tunnelspec.ProbeRefused, tunnelspec.ProbeUnreachable, tunnelspec.ProbeClosed,
		tunnelspec.ProbeCertificate, tunnelspec.ProbeHandshake, tunnelspec.ProbeDenied, tunnelspec.ProbeProtocol, tunnelspec.ProbeOther,
	} {
		if reachRemedy(reason) == "" {
			t.Errorf("%s has none", reason)
		}
	}
}

// TestHostileReportsAreHarmless: a pod's termination message is whatever the node's files say.
func TestHostileReportsAreHarmless(t *testing.T) {
	const evil = "x\x1b[2J\nFAKE: suitable\r\u202e\xff"
	f := suitable()
	f.Version, f.Nodes[0].Name, f.Nodes[0].Status.NodeInfo.OSImage = evil, evil, evil
	f.Reports[evil] = NodeReport{Why: evil, Report: nodereport.Report{Kernel: evil, PortRange: evil, NFS4: evil}}
	for _, format := range append(printing.Formats(), "") {
		var out strings.Builder
		if err := printing.Write(&out, format, Check(f), time.Time{}); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\r\u202e") || strings.Contains(text, "\nFAKE") {
			t.Errorf("%s: %q", format, text)
		}
	}
}
