package volumes

import (
	"fmt"
	"slices"
	"strings"
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

// setMountOption replaces the option with the same key, or adds it.
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

// refusedMountOption returns why a class cannot have an option, or "".
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
