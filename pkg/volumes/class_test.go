package volumes_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func classOptions() cmp.Options {
	return cmp.Options{
		cmpopts.EquateEmpty(),
		cmp.Transformer("text", func(p volumes.Pattern) string { return p.String() }),
	}
}

func TestParseClassReadsParameters(t *testing.T) {
	tests := map[string]struct {
		parameters map[string]string
		edit       func(*volumes.Class) // of a class without parameters
	}{
		"no parameter means the defaults":      {nil, func(*volumes.Class) {}},
		"auto is the default":                  {map[string]string{"default_file_system_id": "auto"}, func(*volumes.Class) {}},
		"a file system is the default":         {map[string]string{"default_file_system_id": "fs-1"}, func(c *volumes.Class) { c.DefaultFileSystemID = "fs-1" }},
		"file systems are a list with spaces":  {map[string]string{"file_system_ids": "fs-1, fs-2"}, func(c *volumes.Class) { c.FileSystemIDs = []string{"fs-1", "fs-2"} }},
		"tags are a list":                      {map[string]string{"file_system_tags": "a=b,c=d=e"}, func(c *volumes.Class) { c.FileSystemTags = map[string]string{"a": "b", "c": "d=e"} }},
		"the base path may be the root":        {map[string]string{"base_path": "/"}, func(*volumes.Class) {}},
		"the base path may end in a slash":     {map[string]string{"base_path": "/a/b/"}, func(c *volumes.Class) { c.BasePath = "/a/b" }},
		"claims of other namespaces may share": {map[string]string{"share_across_namespaces": "true"}, func(c *volumes.Class) { c.Rules.ShareAcrossNamespaces = true }},
		"claims of other clusters may share":   {map[string]string{"share_across_clusters": "true"}, func(c *volumes.Class) { c.Rules.ShareAcrossClusters = true }},
		"existing directories are refused":     {map[string]string{"adopt_existing": "false"}, func(c *volumes.Class) { c.Rules.RefuseExisting = true }},
		"existing directories are adopted":     {map[string]string{"adopt_existing": "true"}, func(*volumes.Class) {}},
		"a volume name is required":            {map[string]string{"require_volume_name": "true"}, func(c *volumes.Class) { c.RequireVolumeName = true }},
		"a mode has four digits":               {map[string]string{"directory_perms": "770"}, func(c *volumes.Class) { c.Directory.Mode = "0770" }},
		"a mode may have special bits":         {map[string]string{"directory_perms": "2771"}, func(c *volumes.Class) { c.Directory.Mode = "2771" }},
		"a group that may write has setgid":    {map[string]string{"gid": "33", "directory_perms": "0770"}, func(c *volumes.Class) { c.Directory.GID, c.Directory.Mode = 33, "2770" }},
		"a group has setgid by default":        {map[string]string{"gid": "33"}, func(c *volumes.Class) { c.Directory.GID, c.Directory.Mode = 33, "2777" }},
		"a group that may not write has none":  {map[string]string{"gid": "33", "directory_perms": "0750"}, func(c *volumes.Class) { c.Directory.GID, c.Directory.Mode = 33, "0750" }},
		"owner and group are numbers":          {map[string]string{"uid": "1000", "gid": "0"}, func(c *volumes.Class) { c.Directory.UID = 1000 }},
		"gids are allocated":                   {map[string]string{"gidAllocate": "true"}, func(c *volumes.Class) { c.Directory.AllocateGID = true }},
		"gids are not allocated":               {map[string]string{"gidAllocate": "false"}, func(*volumes.Class) {}},
		"deleted data is kept for a while":     {map[string]string{"keep_deleted": "72h"}, func(c *volumes.Class) { c.KeepDeleted = "72h" }},
		"deleted data is kept for ever":        {map[string]string{"keep_deleted": "forever"}, func(c *volumes.Class) { c.KeepDeleted = "forever" }},
		"deleted data is not kept":             {map[string]string{"keep_deleted": "0"}, func(*volumes.Class) {}},
		"zones are enforced":                   {map[string]string{"enforce_zone_affinity": "true"}, func(c *volumes.Class) { c.EnforceZoneAffinity = true }},
		"the default may be in the list":       {map[string]string{"default_file_system_id": "fs-2", "file_system_ids": "fs-1,fs-2"}, func(c *volumes.Class) { c.DefaultFileSystemID, c.FileSystemIDs = "fs-2", []string{"fs-1", "fs-2"} }},
		"allocated gids have a range, and a mode": {map[string]string{"gidAllocate": "true", "gidMin": "3000", "gidMax": "3000", "directory_perms": "0770"}, func(c *volumes.Class) {
			c.Directory = operations.Directory{Mode: "2770", AllocateGID: true, GIDMin: 3000, GIDMax: 3000}
		}},
		"allocated gids have an owner beside them": {map[string]string{"gidAllocate": "true", "uid": "7"}, func(c *volumes.Class) {
			c.Directory = operations.Directory{UID: 7, AllocateGID: true}
		}},
		"allocated gids may be low if the class says so": {map[string]string{"gidAllocate": "true", "gidMin": "1000", "gidMax": "1999", "allow_low_gids": "true"}, func(c *volumes.Class) {
			c.Directory, c.AllowLowGIDs = operations.Directory{AllocateGID: true, GIDMin: 1000, GIDMax: 1999}, true
		}},
		"allocated gids begin at the default where low ones are allowed": {map[string]string{"gidAllocate": "true", "allow_low_gids": "true"}, func(c *volumes.Class) {
			c.Directory.AllocateGID, c.AllowLowGIDs = true, true
		}},
		"the EFS CSI driver's class with a group for all": {map[string]string{"uid": "1000", "gid": "1000", "directory_perms": "700", "base_path": "/dynamic_provisioning"}, func(c *volumes.Class) {
			c.Directory, c.BasePath = operations.Directory{Mode: "0700", UID: 1000, GID: 1000}, "/dynamic_provisioning"
		}},
		"the EFS CSI driver's class with a group for each": {map[string]string{"uid": "1000", "gidAllocate": "true", "gidMin": "1000", "gidMax": "2000", "allow_low_gids": "true"}, func(c *volumes.Class) {
			c.Directory, c.AllowLowGIDs = operations.Directory{UID: 1000, AllocateGID: true, GIDMin: 1000, GIDMax: 2000}, true
		}},
		"pinned targets have other ids than EFS's": {map[string]string{"default_file_system_id": "filer-1"}, func(c *volumes.Class) { c.DefaultFileSystemID = "filer-1" }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := parseClass(t, newClass(nil))
			tt.edit(&want)
			got := parseClass(t, newClass(tt.parameters))
			if diff := cmp.Diff(want, got, classOptions()); diff != "" {
				t.Errorf("class mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseClassReadsTheRestOfTheClass(t *testing.T) {
	retain := corev1.PersistentVolumeReclaimRetain
	got := parseClass(t, newClass(nil, waitForFirstConsumer, func(c *storagev1.StorageClass) {
		c.ReclaimPolicy = &retain
		c.MountOptions = []string{"soft,ro", "nfsvers=4.0"}
		c.AllowedTopologies = topologies("topology.kubernetes.io/zone", "b", "a")
	}))
	want := volumes.Class{
		Name: "efs", ReclaimPolicy: retain, WaitsForNode: true, Zones: []string{"a", "b"},
		MountOptions: []string{"vers=4.0", "rsize=1048576", "wsize=1048576", "soft", "timeo=600", "retrans=2", "noresvport", "ro"},
		BasePath:     "/", Pattern: got.Pattern,
	}
	if diff := cmp.Diff(want, got, classOptions()); diff != "" {
		t.Errorf("class mismatch (-want +got):\n%s", diff)
	}
	if plain := parseClass(t, newClass(nil)); plain.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete || plain.WaitsForNode || plain.Zones != nil {
		t.Errorf("a class that says nothing is %+v", plain)
	}
}

func TestDefaultPatternIsParsed(t *testing.T) {
	if _, err := volumes.ParsePattern(wellknown.DefaultPathPattern); err != nil {
		t.Fatal(err)
	}
	if got := parseClass(t, newClass(nil)).Pattern.String(); got != wellknown.DefaultPathPattern {
		t.Errorf("a class without a pattern has %q", got)
	}
}

func TestParseClassRefuses(t *testing.T) {
	const all = "allowed are adopt_existing, allow_low_gids, base_path, default_file_system_id, directory_perms, enforce_zone_affinity, file_system_ids, file_system_tags, gid, gidAllocate, gidMax, gidMin, keep_deleted, path_pattern, require_volume_name, share_across_clusters, share_across_namespaces, share_read_only, uid"
	const aGID = `write a number from 2000 to 2147483647, or from 1000 with allow_low_gids: "true"`
	const noAllocation = `leave it out, or write gidAllocate: "true", which is not the default here`
	const anID = "file systems' ids such as fs-0123456789abcdef0, with commas between"
	tests := map[string]struct {
		parameters map[string]string
		want       string
	}{
		"an unknown parameter":                 {map[string]string{"colour": "red"}, `unknown parameter "colour": ` + all},
		"another spelling":                     {map[string]string{"requireVolumeName": "true"}, `unknown parameter "requireVolumeName": use require_volume_name`},
		"another case":                         {map[string]string{"gidmin": "2000"}, `unknown parameter "gidmin": use gidMin`},
		"a default that is no id":              {map[string]string{"default_file_system_id": "FS 1"}, `parameter default_file_system_id is "FS 1": write auto, or a file system's id such as fs-0123456789abcdef0`},
		"an empty default":                     {map[string]string{"default_file_system_id": ""}, `parameter default_file_system_id is "": write auto, or a file system's id such as fs-0123456789abcdef0`},
		"a list with a gap":                    {map[string]string{"file_system_ids": "fs-1,,fs-2"}, `parameter file_system_ids is "fs-1,,fs-2": write ` + anID},
		"a list with auto in it":               {map[string]string{"file_system_ids": "fs-1,auto"}, `parameter file_system_ids is "fs-1,auto": write ` + anID},
		"an empty list":                        {map[string]string{"file_system_ids": ""}, `parameter file_system_ids is "": write ` + anID},
		"a default that is not in the list":    {map[string]string{"default_file_system_id": "fs-3", "file_system_ids": "fs-1"}, `parameter default_file_system_id is "fs-3": file_system_ids must name it, too`},
		"a tag without a value":                {map[string]string{"file_system_tags": "team"}, `parameter file_system_tags is "team": write key=value, several with commas between, each key once`},
		"a tag twice":                          {map[string]string{"file_system_tags": "a=1,a=2"}, `parameter file_system_tags is "a=1,a=2": write key=value, several with commas between, each key once`},
		"no tags":                              {map[string]string{"file_system_tags": ""}, `parameter file_system_tags is "": write key=value, several with commas between, each key once`},
		"a relative base path":                 {map[string]string{"base_path": "volumes"}, `parameter base_path is "volumes": the path "volumes" does not start with /: write an absolute path such as /volumes`},
		"a base path that leads up":            {map[string]string{"base_path": "/a/../b"}, `parameter base_path is "/a/../b": the path "/a/../b" has the component ..: write an absolute path such as /volumes`},
		"a base path with an empty part":       {map[string]string{"base_path": "/a//b"}, `parameter base_path is "/a//b": the path "/a//b" has an empty component: write an absolute path such as /volumes`},
		"an empty base path":                   {map[string]string{"base_path": ""}, `parameter base_path is "": the path is empty: write an absolute path such as /volumes`},
		"a base path with a variable":          {map[string]string{"base_path": "/${.PVC.namespace}"}, `parameter base_path is "/${.PVC.namespace}": variables belong into path_pattern`},
		"the provisioner's own base path":      {map[string]string{"base_path": "/.efs-stunnel/trash"}, `parameter base_path is "/.efs-stunnel/trash": the path "/.efs-stunnel/trash" is in /.efs-stunnel, where no volume may be: write an absolute path such as /volumes`},
		"a boolean that is none":               {map[string]string{"share_across_namespaces": "yes"}, `parameter share_across_namespaces is "yes": write true or false`},
		"a boolean in capitals":                {map[string]string{"adopt_existing": "False"}, `parameter adopt_existing is "False": write true or false`},
		"a mode that is not octal":             {map[string]string{"directory_perms": "0980"}, `parameter directory_perms is "0980": write an octal mode from 0000 to 7777, such as 0770`},
		"a mode that is too large":             {map[string]string{"directory_perms": "10777"}, `parameter directory_perms is "10777": write an octal mode from 0000 to 7777, such as 0770`},
		"a negative uid":                       {map[string]string{"uid": "-1"}, `parameter uid is "-1": write a number from 0 to 2147483647`},
		"a gid that is too large":              {map[string]string{"gid": "4294967295"}, `parameter gid is "4294967295": write a number from 0 to 2147483647`},
		"a uid that is a name":                 {map[string]string{"uid": "root"}, `parameter uid is "root": write a number from 0 to 2147483647`},
		"a range that is low":                  {map[string]string{"gidAllocate": "true", "gidMin": "1000"}, `parameter gidMin is "1000": ` + aGID},
		"a range that ends low":                {map[string]string{"gidAllocate": "true", "gidMax": "1999"}, `parameter gidMax is "1999": ` + aGID},
		"a low range that is not allowed":      {map[string]string{"gidAllocate": "true", "gidMin": "1000", "gidMax": "1999", "allow_low_gids": "false"}, `parameter gidMax is "1999": ` + aGID + `; parameter gidMin is "1000": ` + aGID},
		"a range that reaches system groups":   {map[string]string{"gidAllocate": "true", "gidMin": "999", "allow_low_gids": "true"}, `parameter gidMin is "999": ` + aGID},
		"a range that reaches root's group":    {map[string]string{"gidAllocate": "true", "gidMin": "0", "allow_low_gids": "true"}, `parameter gidMin is "0": ` + aGID},
		"a range that ends before it begins":   {map[string]string{"gidAllocate": "true", "gidMax": "1999", "allow_low_gids": "true"}, `parameter gidMax is "1999": write gidMin, too, which is 2000 by default`},
		"a range that is upside down":          {map[string]string{"gidAllocate": "true", "gidMin": "5000", "gidMax": "4000"}, `parameter gidMin is "5000": it must not be above gidMax, 4000`},
		"a range without allocation":           {map[string]string{"gidMax": "4000"}, `parameter gidMax is "4000": ` + noAllocation},
		"a range that efs-provisioner ignored": {map[string]string{"gidAllocate": "false", "gidMin": "2000", "gidMax": "4000"}, `parameter gidMin is "2000": ` + noAllocation + `; parameter gidMax is "4000": ` + noAllocation},
		"low gids without allocation":          {map[string]string{"allow_low_gids": "true"}, `parameter allow_low_gids is "true": ` + noAllocation},
		"a group with allocation":              {map[string]string{"gidAllocate": "true", "uid": "7", "gid": "8"}, `parameter gid is "8": leave it out, or gidAllocate with its range: gid is one group for all directories, gidAllocate gives each its own`},
		"a time that is none":                  {map[string]string{"keep_deleted": "7 days"}, `parameter keep_deleted is "7 days": write a duration such as 72h, 0, or forever`},
		"a negative time":                      {map[string]string{"keep_deleted": "-1h"}, `parameter keep_deleted is "-1h": write a duration such as 72h, 0, or forever`},
		"everything that is wrong, at once":    {map[string]string{"uid": "x", "gid": "y", "az": "us-east-1a"}, `unknown parameter "az": leave it out: every node uses the mount target of its own zone; parameter gid is "y": write a number from 0 to 2147483647; parameter uid is "x": write a number from 0 to 2147483647`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := volumes.ParseClass(newClass(tt.parameters))
			wantRefusal(t, err, `storage class "efs": `+tt.want)
		})
	}
}

func TestParseClassRefusesRecycling(t *testing.T) {
	recycle := corev1.PersistentVolumeReclaimRecycle
	_, err := volumes.ParseClass(newClass(nil, func(c *storagev1.StorageClass) { c.ReclaimPolicy = &recycle }))
	wantRefusal(t, err, `storage class "efs": reclaimPolicy is "Recycle": write Delete or Retain`)
}

func TestParseClassAdvisesOnParametersOfOthers(t *testing.T) {
	const accounts = "pin file systems of other accounts in ConfigMap efs-stunnel-pinned"
	const tunnel = "use default_file_system_id: volumes are reached through a tunnel of the node, by the id of their file system"
	tests := map[string]string{ // key -> advice
		"fileSystemId":          "use default_file_system_id, and file_system_ids for what claims may ask for",
		"fileSystemIdConfigRef": "use default_file_system_id with the id itself",
		"fileSystemIdSecretRef": "use default_file_system_id with the id itself",
		"directoryPerms":        "use directory_perms",
		"gidRangeStart":         `write gidMin with gidAllocate: "true", and below 2000 with allow_low_gids: "true"; leave it out beside uid and gid, as the EFS CSI driver ignores it there`,
		"gidRangeEnd":           `write gidMax with gidAllocate: "true"; leave it out beside uid and gid`,
		"basePath":              "use base_path",
		"subPathPattern":        "use path_pattern",
		"ensureUniqueDirectory": "leave it out: a claim without the label volume_name gets a directory of its own; in a path_pattern, ${.PVC.uid} does the same",
		"az":                    "leave it out: every node uses the mount target of its own zone",
		"reuseAccessPoint":      "leave it out: claims with the same label volume_name share a directory",
		"enforceZoneAffinity":   "use enforce_zone_affinity",
		"enableTagging":         "leave it out: nothing is made in AWS that could be tagged",
		"encryptInTransit":      "leave it out: volumes are always encrypted in transit",
		"mounttargetip":         "pin the address in ConfigMap efs-stunnel-pinned",
		"crossaccount":          accounts,
		"awsRoleArn":            accounts,
		"externalId":            accounts,
		"pathPattern":           "use path_pattern",
		"onDelete":              "use reclaimPolicy (Delete or Retain) beside parameters, and keep_deleted to keep deleted data for a while",
		"archiveOnDelete":       "use keep_deleted with a duration or forever: deleted data stays in the trash so long",
		"server":                tunnel,
		"dnsName":               tunnel,
		"share":                 "use base_path",
		"subDir":                "use path_pattern",
		"mountPermissions":      "use directory_perms",
		"rootSquash":            "leave it out: use the file system's policy in AWS",
		"mountOptions":          "use mountOptions beside parameters",
		"fsType":                "leave it out: it is always NFS",

		"csi.storage.k8s.io/provisioner-secret-name": "leave it out: it is for CSI drivers",
	}
	for key, advice := range tests {
		t.Run(key, func(t *testing.T) {
			_, err := volumes.ParseClass(newClass(map[string]string{key: "x"}))
			wantRefusal(t, err, `storage class "efs": unknown parameter "`+key+`": `+advice)
		})
	}
}

// What an event can hold is not much, and a class can have 256 KiB of parameters.
func TestParseClassRefusesInFewWords(t *testing.T) {
	parameters := map[string]string{"uid": strings.Repeat("\x00", 1000), strings.Repeat("ä", 1000): "x"}
	_, err := volumes.ParseClass(newClass(parameters))
	if err == nil || len(err.Error()) > 1024 || strings.ContainsRune(err.Error(), 0) {
		t.Errorf("refused with %q", err)
	}
	if len(slices.Collect(maps.Keys(parameters))) != 2 {
		t.Error("the class was changed")
	}
}
