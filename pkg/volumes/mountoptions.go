package volumes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mergeMountOptions overrides the defaults with a class's options. A default that is replaced keeps
// its position; but kubelet sorts them, so no two may have the same key.
func mergeMountOptions(defaults string, class []string) (merged, findings []string) {
	merged = strings.Split(defaults, ",")
	for option := range strings.SplitSeq(strings.Join(class, ","), ",") {
		option = strings.TrimSpace(option)
		if option == "" {
			continue
		}
		if why := refusedMountOption(option); why != "" {
			findings = append(findings, fmt.Sprintf("mount option %s: %s", quoted(option), why))
			continue
		}
		merged = setMountOption(merged, option)
	}
	return merged, findings
}

func setMountOption(options []string, option string) []string {
	option = kernelSpelling(option)
	same := func(other string) bool { return mountOptionKey(other) == mountOptionKey(option) }
	if i := slices.IndexFunc(options, same); i >= 0 {
		options[i] = option
		return options
	}
	return append(options, option)
}

// kernelSpelling returns an option as /proc/mounts shows it. mount(8) has several spellings of the NFS
// version, and tools compare the options of a volume with those of its mounts.
func kernelSpelling(option string) string {
	if key, version, _ := strings.Cut(option, "="); key == "nfsvers" {
		return "vers=" + version
	}
	if version, ok := strings.CutPrefix(option, "v"); ok && strings.Trim(version, "0123456789.") == "" {
		return "vers=" + version // v3, v4, v4.1
	}
	return option
}

func kernelSpellings(options []string) []string {
	spelled := make([]string, len(options))
	for i, option := range options {
		spelled[i] = kernelSpelling(option)
	}
	return spelled
}

// mountOptionKey returns a key that is equal for options of which a mount can have only one.
func mountOptionKey(option string) string {
	key, _, hasValue := strings.Cut(kernelSpelling(option), "=")
	switch {
	case key == "soft", key == "softerr":
		return "hard"
	case key == "tcp", key == "udp", key == "rdma":
		return "proto"
	case key == "ro", key == "rw":
		return "rw"
	case !hasValue:
		return strings.TrimPrefix(key, "no") // noresvport, nolock
	}
	return key
}

func refusedMountOption(option string) string {
	if strings.ContainsFunc(option, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "only printable ASCII without spaces is allowed"
	}
	key, value, _ := strings.Cut(kernelSpelling(option), "=")
	switch mountOptionKey(option) {
	case "port", "proto", "addr", "source":
		return "leave it out: the provisioner sets port, protocol and address of the node's tunnel"
	case "nconnect":
		return "leave it out: EFS does not support several connections for one mount"
	case "sec":
		return "leave it out: EFS has no Kerberos; the connection is encrypted by its tunnel"
	case "minorversion":
		return "write vers=4." + plain(value)
	case "vers":
		if !slices.Contains([]string{"4", "4.0", "4.1", "4.2"}, value) {
			return "write vers=4.1 or vers=4.0: EFS knows no version below 4"
		}
	}
	if slices.Contains(mountHelperOptions(), key) {
		return "leave it out: it is for the EFS mount helper; volumes are plain NFS mounts through the node's encrypted tunnel"
	}
	return refusedNFSOption(kernelSpelling(option))
}

// mountHelperOptions returns the options of efs-utils, which mount.nfs would not know.
func mountHelperOptions() []string {
	return []string{
		"tls", "notls", "tlsport", "iam", "az", "azid", "accesspoint", "awsprofile", "awscredsuri",
		"rolearn", "jwtpath", "crossaccount", "mounttargetip", "region", "netns", "cafile", "verify",
		"ocsp", "noocsp", "stunnel", "nodirects3read", "nos3readcache",
	}
}

// HarmfulMountOption returns the mount option that has a volume's pods write elsewhere than its owner expects, and
// why, or "". Classes are refused for these options, but a volume may be older, or have been edited.
func HarmfulMountOption(volume *corev1.PersistentVolume) string {
	options := volume.Spec.MountOptions
	if old, ok := volume.Annotations[corev1.MountOptionAnnotation]; ok {
		options = []string{old} // kubelet then uses no others
	}
	for option := range strings.SplitSeq(strings.Join(options, ","), ",") {
		option = strings.TrimSpace(option)
		if why := harm(option); why != "" {
			return fmt.Sprintf("mount option %s: %s", quoted(option), why)
		}
	}
	return ""
}

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

// SetPort sets the port in a volume's mount options and says whether that changed the volume. If the
// volume has the old annotation with mount options, kubelet reads no others.
func SetPort(volume *corev1.PersistentVolume, port int) (changed bool) {
	if old, ok := volume.Annotations[corev1.MountOptionAnnotation]; ok {
		options := strings.Join(withPort([]string{old}, port), ",")
		volume.Annotations[corev1.MountOptionAnnotation] = options
		return options != old
	}
	options := withPort(volume.Spec.MountOptions, port)
	changed = !slices.Equal(options, volume.Spec.MountOptions)
	volume.Spec.MountOptions = options
	return changed
}

// withPort returns mount options with this port and no other, unchanged if they are so already. 0 is no port.
func withPort(options []string, port int) []string {
	want := fmt.Sprintf("port=%d", port)
	all := strings.Split(strings.Join(options, ","), ",")
	var others []string
	for _, option := range all {
		option = strings.TrimSpace(option)
		if option != "" && !strings.HasPrefix(option, "port=") {
			others = append(others, option)
		}
	}
	if slices.Contains(all, want) && len(all) == len(others)+1 {
		return options
	}
	if port == 0 {
		return others
	}
	return append(others, want)
}
