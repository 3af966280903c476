package volumes

import (
	"slices"
	"strings"
)

// leaveOut begins the advice about a parameter that has no counterpart.
const leaveOut = "leave it out: "

// foreignParameter returns what to write in place of a parameter of another provisioner: the EFS CSI driver,
// efs-provisioner, nfs-subdir-external-provisioner, nfs-ganesha, csi-driver-nfs.
func foreignParameter(key string) (advice string, ok bool) {
	if strings.HasPrefix(key, "csi.storage.k8s.io/") {
		return leaveOut + "it is for CSI drivers", true
	}
	advice, ok = foreignParameters()[key]
	return advice, ok
}

func foreignParameters() map[string]string {
	return map[string]string{
		// Which file system.
		"fileSystemId":          "use default_file_system_id, and file_system_ids for what claims may ask for",
		"fileSystemIdConfigRef": "use default_file_system_id with the id itself",
		"fileSystemIdSecretRef": "use default_file_system_id with the id itself",
		"server":                "use default_file_system_id: volumes are reached through a tunnel of the node, by the id of their file system",
		"dnsName":               "use default_file_system_id: volumes are reached through a tunnel of the node, by the id of their file system",

		// Which directory.
		"basePath":              "use base_path",
		"share":                 "use base_path",
		"subPathPattern":        "use path_pattern",
		"pathPattern":           "use path_pattern",
		"subDir":                "use path_pattern",
		"ensureUniqueDirectory": leaveOut + "a claim without the label volume_name gets a directory of its own; in a path_pattern, ${.PVC.uid} does the same",
		"reuseAccessPoint":      leaveOut + "claims with the same label volume_name share a directory",

		// Whose directory.
		"directoryPerms":   "use directory_perms",
		"mountPermissions": "use directory_perms",
		"gidRangeStart":    `write gidMin with gidAllocate: "true", and below 2000 with allow_low_gids: "true"; leave it out beside uid and gid, as the EFS CSI driver ignores it there`,
		"gidRangeEnd":      `write gidMax with gidAllocate: "true"; leave it out beside uid and gid`,
		"rootSquash":       leaveOut + "use the file system's policy in AWS",

		// What becomes of it.
		"onDelete":        "use reclaimPolicy (Delete or Retain) beside parameters, and keep_deleted to keep deleted data for a while",
		"archiveOnDelete": "use keep_deleted with a duration or forever: deleted data stays in the trash so long",

		// How it is reached.
		"provisioningMode":    leaveOut + "every volume is a directory",
		"enforceZoneAffinity": "use enforce_zone_affinity",
		"az":                  leaveOut + "every node uses the mount target of its own zone",
		"encryptInTransit":    leaveOut + "volumes are always encrypted in transit",
		"mounttargetip":       "pin the address in ConfigMap efs-stunnel-pinned",
		"crossaccount":        "pin file systems of other accounts in ConfigMap efs-stunnel-pinned",
		"awsRoleArn":          "pin file systems of other accounts in ConfigMap efs-stunnel-pinned",
		"externalId":          "pin file systems of other accounts in ConfigMap efs-stunnel-pinned",
		"enableTagging":       leaveOut + "nothing is made in AWS that could be tagged",
		"mountOptions":        "use mountOptions beside parameters",
		"fsType":              leaveOut + "it is always NFS",
	}
}

// similar finds the key of ours that differs from a key in spelling only.
func similar(key string, ours []string) (own string, ok bool) {
	bare := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(s))
	}
	i := slices.IndexFunc(ours, func(own string) bool { return bare(own) == bare(key) })
	if i < 0 {
		return "", false
	}
	return ours[i], true
}
