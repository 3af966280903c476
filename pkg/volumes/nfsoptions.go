package volumes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// HarmfulMountOption returns the mount option that has a volume's pods write elsewhere than its owner expects, and
// why, or "". Classes are refused for these options, but a volume may be older, or have been edited.
func HarmfulMountOption(volume *corev1.PersistentVolume) string {
	options := volume.Spec.MountOptions
	if old, ok := volume.Annotations[corev1.MountOptionAnnotation]; ok {
		options = []string{old} // kubelet then uses no others
	}
	for _, several := range options {
		for option := range strings.SplitSeq(several, ",") {
			option = strings.TrimSpace(option)
			if why := harm(option); why != "" {
				return fmt.Sprintf("mount option %s: %s", quoted(option), why)
			}
		}
	}
	return ""
}

func isHarmful(option string) bool { return harm(option) != "" }

// harm returns advice against an option that harms pods which do not notice it, or "".
func harm(option string) string {
	switch key, _, _ := strings.Cut(option, "="); key {
	case "bg", "background":
		return "leave it out: a pod that starts while its node's tunnel does not answer would run without its volume, and write on the node's own disk"
	case "X-mount.subdir":
		return "leave it out: pods would use another directory than the volume's"
	case "X-mount.owner", "X-mount.group", "X-mount.mode":
		return "leave it out: each mount would change the owner or the mode of the volume's directory; write uid, gid and directory_perms as parameters of the class"
	}
	return ""
}

// refusedNFSOption returns why a class cannot have an option that is not the provisioner's own, or "". It accepts
// what NFS 4 ignores and misleads no user: lists of options are copied, and work.
func refusedNFSOption(option string) string {
	key, value, hasValue := strings.Cut(option, "=")
	if why := harm(option); why != "" {
		return why
	}
	switch key {
	case "mountaddr", "mounthost", "mountport", "mountproto", "mountvers":
		return "leave it out: it is for the mount protocol of NFS 3, and EFS knows no version below 4"
	case "clientaddr":
		return "leave it out: it is the address of one node, and all nodes mount the volume"
	case "xprtsec":
		return "leave it out: the connection is encrypted by its tunnel"
	case "user", "users", "owner", "group":
		return "leave it out: it forbids programs, setuid bits or devices in the volume, and only root mounts volumes; write noexec, nosuid or nodev if that is meant"
	}
	wanted, known := nfsOption(key)
	switch {
	case !known:
		return "leave it out: NFS 4 has no such mount option, so no pod could mount the volume"
	case wanted == noValue && hasValue:
		return "write " + key + " without a value"
	case wanted == aNumber && (value == "" || strings.Trim(value, "0123456789") != ""):
		return "write a number after " + key + "="
	case wanted != noValue && wanted != aNumber && wanted != anyValue && !slices.Contains(strings.Split(wanted, ", "), value):
		return "write one of these after " + key + "=: " + wanted
	}
	return ""
}

// What an option's value may be, if it is not one of a list.
const (
	noValue  = "" // no value
	aNumber  = "number"
	anyValue = "anything"
)

// nfsOption returns the kind of value of an option, and whether the option exists: in nfs(5) for NFS 4, in the
// kernel's client, or in mount(8) for every file system.
func nfsOption(key string) (value string, known bool) {
	switch key {
	case "hard", "soft", "softerr", "softreval", "nosoftreval", "fg", "sloppy", "intr", "nointr",
		"ac", "noac", "acl", "noacl", "cto", "nocto", "lock", "nolock", "nofsc", "migration", "nomigration",
		"nordirplus", "resvport", "noresvport", "sharecache", "nosharecache", "posix", "noposix",
		"trunkdiscovery", "notrunkdiscovery", "alignwrite", "noalignwrite":
		return noValue, true
	case "ro", "rw", "exec", "noexec", "suid", "nosuid", "dev", "nodev", "sync", "async", "dirsync",
		"atime", "noatime", "diratime", "nodiratime", "relatime", "norelatime", "strictatime", "nostrictatime",
		"lazytime", "nolazytime", "iversion", "noiversion", "mand", "nomand", "silent", "loud", "symfollow", "nosymfollow",
		"defaults", "auto", "noauto", "nofail", "_netdev", "nouser", "nousers", "noowner", "nogroup":
		return noValue, true
	case "rsize", "wsize", "bsize", "timeo", "retrans", "retry", "namlen", "max_connect",
		"actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax":
		return aNumber, true
	case "lookupcache":
		return "all, none, pos, positive", true
	case "local_lock":
		return "all, flock, posix, none", true
	case "write":
		return "lazy, eager, wait", true
	case "vers", "fsc", "rdirplus", "comment", "context", "fscontext", "defcontext", "rootcontext":
		return anyValue, true
	}
	return anyValue, strings.HasPrefix(key, "x-") || strings.HasPrefix(key, "X-") // comments for other programs
}
