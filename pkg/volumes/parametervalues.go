package volumes

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// boolean accepts true and false only, so that no other spelling of "no" means true.
func boolean(field func(*Class) *bool) func(*Class, string) error {
	return func(c *Class, value string) error {
		if value != "true" && value != "false" {
			return errors.New("write true or false")
		}
		*field(c) = value == wellknown.ValueTrue
		return nil
	}
}

func number(lowest int64, field func(*Class) *int) func(*Class, string) error {
	return func(c *Class, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < lowest || n > operations.MaxID {
			return fmt.Errorf("write a number from %d to %d", lowest, operations.MaxID)
		}
		*field(c) = int(n)
		return nil
	}
}

// allocatedGID returns the setter of an end of the range of gids. Whether it may be below the default range depends on
// another parameter: see rangeContradictions.
func allocatedGID(field func(*Class) *int) func(*Class, string) error {
	set := number(wellknown.LowestGIDMin, field)
	return func(c *Class, value string) error {
		if err := set(c, value); err != nil {
			return errors.New(wantAllocatedGID())
		}
		return nil
	}
}

func wantAllocatedGID() string {
	return fmt.Sprintf(`write a number from %d to %d, or from %d with allow_low_gids: "true"`, wellknown.DefaultGIDMin, operations.MaxID, wellknown.LowestGIDMin)
}

func setAdoptExisting(c *Class, value string) error {
	adopt := false
	err := boolean(func(*Class) *bool { return &adopt })(c, value)
	c.Rules.RefuseExisting = !adopt
	return err
}

func setDefaultFileSystem(c *Class, value string) error {
	if value == wellknown.DefaultFileSystemID {
		return nil
	}
	if err := ports.CheckTargetID(value); err != nil {
		return errors.New("write auto, or a file system's id such as fs-0123456789abcdef0")
	}
	c.DefaultFileSystemID = value
	return nil
}

func setFileSystemIDs(c *Class, value string) error {
	for id := range strings.SplitSeq(value, ",") {
		id = strings.TrimSpace(id)
		if err := ports.CheckTargetID(id); err != nil || id == wellknown.DefaultFileSystemID {
			return errors.New("write file systems' ids such as fs-0123456789abcdef0, with commas between")
		}
		c.FileSystemIDs = append(c.FileSystemIDs, id)
	}
	return nil
}

func setFileSystemTags(c *Class, value string) error {
	tags, err := efs.ParseTags(value)
	if err != nil || len(tags) == 0 {
		return errors.New("write key=value, several with commas between, each key once")
	}
	c.FileSystemTags = tags
	return nil
}

// setBasePath accepts one slash at the end.
func setBasePath(c *Class, value string) error {
	if value == wellknown.DefaultBasePath {
		return nil
	}
	base := strings.TrimSuffix(value, "/")
	if strings.Contains(base, "${") {
		return errors.New("variables belong into path_pattern")
	}
	if err := operations.CheckPath(base); err != nil {
		return fmt.Errorf("%w: write an absolute path such as /volumes", err)
	}
	c.BasePath = base
	return nil
}

func setPattern(c *Class, value string) (err error) {
	c.Pattern, err = ParsePattern(value)
	return err
}

func setMode(c *Class, value string) error {
	mode, err := strconv.ParseUint(value, 8, 32)
	if err != nil || mode > 0o7777 {
		return errors.New("write an octal mode from 0000 to 7777, such as 0770")
	}
	c.Directory.Mode = fmt.Sprintf("%04o", mode)
	return nil
}

func setKeepDeleted(c *Class, value string) error {
	if !isKeep(value) {
		return errors.New("write a duration such as 72h, 0, or forever")
	}
	if value != wellknown.DefaultKeepDeleted {
		c.KeepDeleted = value
	}
	return nil
}

func isKeep(value string) bool {
	_, _, err := operations.ParseKeep(value)
	return value != "" && err == nil
}

const leaveOut = "leave it out: "

// foreignParameters returns what to write in place of parameters of other provisioners: the EFS CSI driver,
// efs-provisioner, nfs-subdir-external-provisioner, nfs-ganesha, csi-driver-nfs.
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
