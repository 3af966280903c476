package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Causes of results about nodes that were examined.
const (
	NodeNotExamined       inspect.Cause = "NodeNotExamined"
	NoKernelClient        inspect.Cause = "NoKernelClient"
	PortsAreEphemeral     inspect.Cause = "PortInEphemeralRange"
	SELinuxRefuses        inspect.Cause = "SELinuxRefusesNFS"
	MountTargetNotReached inspect.Cause = "MountTargetNotReached"
	EFSNotListed          inspect.Cause = "EFSNotListed"
)

// reported returns the results of the report of a node's pod.
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
		results = append(results, fine(object, "%s", text))
	}
	return results
}

// mountHelper returns the results about mount.nfs, which the kubelet runs, and the kernel's NFS client.
func mountHelper(object, image string, r nodereport.Report) []inspect.Result {
	var results []inspect.Result
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
	if count, first := overlap(f.Ports, parsed.Contains); count > 0 {
		return []inspect.Result{problem(PortsAreEphemeral, object,
			fmt.Sprintf("its kernel may give %d of the tunnels' ports, the first is %d, to any process (ip_local_port_range is %s)", count, first, r.PortRange),
			"on the node: sysctl -w net.ipv4.ip_local_reserved_ports="+f.Ports.String())}
	}
	return nil
}

func selinux(object string, r nodereport.Report) []inspect.Result {
	var results []inspect.Result
	for _, name := range slices.Sorted(maps.Keys(r.Booleans)) {
		if r.Enforcing && !r.Booleans[name] {
			results = append(results, problem(SELinuxRefuses, object, "SELinux is enforcing, and its boolean "+name+" is off: containers may not use NFS volumes",
				"on the node: setsebool -P "+name+" 1"))
		}
	}
	return results
}

// reachRemedy returns the remedy for a mount target that does not answer.
func reachRemedy(reason string) string {
	if reason == nodereport.ReasonName {
		return "enable DNS in the VPC, create a mount target in the node's zone, and check the id and the region"
	}
	return tunnelspec.ProbeRemedy(reason)
}

func servers(object, zone string, r nodereport.Report) []inspect.Result {
	var results []inspect.Result
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
