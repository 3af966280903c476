//go:build integration

package integration_test

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

// refusal is a class that refuses every claim, and the words that say why.
type refusal struct {
	parameters map[string]string
	options    []string // mountOptions
	topologies []corev1.TopologySelectorTerm
	words      []string
}

func refusedParameter(key, value string, words ...string) refusal {
	return refusal{parameters: map[string]string{key: value}, words: append([]string{key, value}, words...)}
}

func refusedOption(option string, words ...string) refusal {
	return refusal{options: []string{option}, words: append([]string{option}, words...)}
}

// refusedParameters are every parameter with a bad value, those of other drivers, and those that
// contradict each other.
func refusedParameters() map[string]refusal {
	return map[string]refusal{
		"default-file-system-id":  refusedParameter("default_file_system_id", "../etc", "auto"),
		"file-system-ids":         refusedParameter("file_system_ids", "fs-1,,fs-2", "commas"),
		"file-system-tags":        refusedParameter("file_system_tags", "team", "key=value"),
		"base-path":               refusedParameter("base_path", "volumes", "absolute"),
		"base-path-variable":      refusedParameter("base_path", "/${volume_name}", "path_pattern"),
		"base-path-up":            refusedParameter("base_path", "/a/../b"),
		"base-path-state":         refusedParameter("base_path", wellknown.StateDirectory),
		"path-pattern":            refusedParameter("path_pattern", "${.PVC.nmespace}/x", "${.PVC.namespace}"),
		"path-pattern-up":         refusedParameter("path_pattern", "../${volume_name}"),
		"path-pattern-state":      refusedParameter("path_pattern", ".efs-stunnel/${volume_name}"),
		"path-pattern-owner":      refusedParameter("path_pattern", "@${volume_name}"),
		"share-across-namespaces": refusedParameter("share_across_namespaces", "yes", "true or false"),
		"share-across-clusters":   refusedParameter("share_across_clusters", "1", "true or false"),
		"adopt-existing":          refusedParameter("adopt_existing", "no", "true or false"),
		"require-volume-name":     refusedParameter("require_volume_name", "True", "true or false"),
		"directory-perms":         refusedParameter("directory_perms", "0999", "octal"),
		"uid":                     refusedParameter("uid", "-1", "number from 0"),
		"gid":                     refusedParameter("gid", "2147483648", "2147483647"),
		"gid-allocate":            refusedParameter("gidAllocate", "on", "true or false"),
		"gid-min":                 {parameters: map[string]string{"gidAllocate": "true", "gidMin": "0"}, words: []string{"gidMin", "2000"}},
		"gid-min-low":             {parameters: map[string]string{"gidAllocate": "true", "gidMin": "1000"}, words: []string{"gidMin", "allow_low_gids"}},
		"gid-max":                 {parameters: map[string]string{"gidAllocate": "true", "gidMax": "many"}, words: []string{"gidMax", "2147483647"}},
		"keep-deleted":            refusedParameter("keep_deleted", "2 days", "72h", "forever"),
		"enforce-zone-affinity":   refusedParameter("enforce_zone_affinity", "", "true or false"),

		"unknown":                 refusedParameter("color", "blue", "directory_perms"),
		"other-spelling":          refusedParameter("defaultFileSystemID", "auto", "write default_file_system_id"),
		"csi-file-system-id":      refusedParameter("fileSystemId", "fs-1", "write default_file_system_id"),
		"csi-base-path":           refusedParameter("basePath", "/x", "write base_path"),
		"csi-directory-perms":     refusedParameter("directoryPerms", "700", "write directory_perms"),
		"csi-provisioning-mode":   refusedParameter("provisioningMode", "efs-ap", "leave it out"),
		"csi-secret":              refusedParameter("csi.storage.k8s.io/provisioner-secret-name", "x", "CSI"),
		"subdir-path-pattern":     refusedParameter("pathPattern", "x", "write path_pattern"),
		"subdir-on-delete":        refusedParameter("onDelete", "retain", "reclaimPolicy"),
		"subdir-archive":          refusedParameter("archiveOnDelete", "true", "write keep_deleted"),
		"gid-range-without":       {parameters: map[string]string{"gidMin": "3000"}, words: []string{"gidMin", "gidAllocate"}},
		"gid-range-upside-down":   {parameters: map[string]string{"gidAllocate": "true", "gidMin": "4000", "gidMax": "3000"}, words: []string{"gidMin", "4000", "above gidMax"}},
		"gid-and-allocate":        {parameters: map[string]string{"gidAllocate": "true", "gid": "5"}, words: []string{"parameter gid", "leave it out"}},
		"default-not-among-these": {parameters: map[string]string{"default_file_system_id": "fs-1", "file_system_ids": "fs-2"}, words: []string{"file_system_ids must name it"}},
		"several-at-once":         {parameters: map[string]string{"uid": "root", "color": "blue"}, words: []string{"uid", "root", "color", "blue"}},

		"topology-key":  {topologies: topology("example.com/rack", "7"), words: []string{"example.com/rack", corev1.LabelTopologyZone}},
		"topology-zone": {topologies: topology(corev1.LabelTopologyZone, "us-east-1f"), words: []string{"without a mount target", "us-east-1f"}},
	}
}

// refusedOptions are one mount option of each class that may not be.
func refusedOptions() map[string]refusal {
	return map[string]refusal{
		"port": refusedOption("port=2049", "node's tunnel"), "proto": refusedOption("proto=udp", "node's tunnel"),
		"tcp": refusedOption("tcp", "node's tunnel"), "addr": refusedOption("addr=10.0.0.1", "node's tunnel"),
		"tls": refusedOption("tls", "EFS mount helper"), "notls": refusedOption("notls", "EFS mount helper"),
		"iam": refusedOption("iam", "EFS mount helper"), "az": refusedOption("az=us-east-1a", "EFS mount helper"),
		"accesspoint": refusedOption("accesspoint=fsap-1", "EFS mount helper"), "awsprofile": refusedOption("awsprofile=x", "EFS mount helper"),
		"nconnect": refusedOption("nconnect=4", "several connections"), "sec": refusedOption("sec=krb5", "Kerberos"),
		"version-3": refusedOption("nfsvers=3", "vers=4.1"), "vers": refusedOption("vers=2", "vers=4.1"), "v3": refusedOption("v3", "vers=4.1"),
		"minorversion":  refusedOption("minorversion=0", "write vers=4.0"),
		"in-one-string": {options: []string{"soft,nconnect=2"}, words: []string{"nconnect=2"}},
		"not-printable": {options: []string{"hard\tx"}, words: []string{`hard\tx`, "printable"}},
	}
}

func topology(key, value string) []corev1.TopologySelectorTerm {
	return []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: []string{value}}}}}
}

// TestRefusedClasses has each refusal told once, and taken back when the class is made anew.
func TestRefusedClasses(t *testing.T) {
	s := newClaimsWorld(t)
	refusals := refusedParameters()
	for name, r := range refusedOptions() {
		refusals["option-"+name] = r
	}
	names := slices.Sorted(maps.Keys(refusals))
	classes, claims := map[string]*storagev1.StorageClass{}, map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range names {
		r := refusals[name]
		classes[name] = s.NewClass(name, r.parameters, func(class *storagev1.StorageClass) {
			class.MountOptions, class.AllowedTopologies = r.options, r.topologies
		})
		claims[name] = s.NewClaim(name, classes[name].Name)
	}
	for _, name := range names {
		s.awaitRejected(claims[name], refusals[name].words...)
	}
	s.pass("meanwhile", slices.Collect(maps.Values(claims))...)
	for _, name := range names {
		s.wantNothingAt(ownDirectory(claims[name]))
		s.replaceClass(classes[name], func(class *storagev1.StorageClass) {
			class.Parameters, class.MountOptions, class.AllowedTopologies = nil, nil, nil
		})
	}
	for _, name := range names {
		s.await(claims[name])
		s.wantNotRejected(claims[name])
		s.wantTold(claims[name], wellknown.EventProvisioningFailed, 1)
	}
}

// TestRefusedClaims are claims that nothing can make right. Each is told once, and left alone.
func TestRefusedClaims(t *testing.T) {
	s := newClaimsWorld(t)
	strict := s.NewClass("strict", map[string]string{"require_volume_name": "true", "file_system_ids": s.fileSystem})
	block, other := corev1.PersistentVolumeBlock, "gold"
	labels := world.WithLabels
	tests := map[string]struct {
		class string
		edit  func(*corev1.PersistentVolumeClaim)
		words []string
	}{
		"pod-alone": {s.class, withModes(corev1.ReadWriteOncePod), []string{"ReadWriteOncePod", "ReadWriteMany"}},
		"block":     {s.class, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }, []string{"Block", "Filesystem"}},
		"attributes": {s.class, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &other },
			[]string{"volumeAttributesClassName", "gold"}},
		"copy-of-claim": {s.class, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
		}, []string{"PersistentVolumeClaim", "source", "cannot be copied"}},
		"copy-of-snapshot": {s.class, func(c *corev1.PersistentVolumeClaim) {
			group := "snapshot.storage.k8s.io"
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "nightly"}
		}, []string{"VolumeSnapshot", "nightly", "cannot be copied"}},
		"expressions":       {s.class, withExpressions, []string{"matchExpressions", "matchLabels"}},
		"name-in-capitals":  {s.class, called("Data"), []string{"volume_name", "Data", "a-z"}},
		"name-with-dots":    {s.class, called("a..b"), []string{"volume_name", "a..b"}},
		"policy-recycle":    {s.class, labels(map[string]string{"reclaim_policy": "Recycle"}), []string{"reclaim_policy", "Recycle", "Delete or Retain"}},
		"file-system-auto":  {s.class, labels(map[string]string{"file_system_id": "auto"}), []string{"file_system_id", "leave it out"}},
		"file-system-other": {strict.Name, labels(map[string]string{"file_system_id": "fs-other", "volume_name": "x"}), []string{"fs-other", "allows", s.fileSystem}},
		"root-key":          {s.class, labels(map[string]string{"root_key": "x"}), []string{"root_key", "whole file systems"}},
		"label-kubernetes":  {s.class, labels(map[string]string{"topology.kubernetes.io/zone": "x"}), []string{"topology.kubernetes.io/zone", "kubernetes.io"}},
		"label-k8s":         {s.class, labels(map[string]string{"x.k8s.io/y": "z"}), []string{"x.k8s.io/y", "k8s.io"}},
		"label-ours":        {s.class, labels(map[string]string{wellknown.AnnotationPath: "x"}), []string{wellknown.AnnotationPath, wellknown.Domain}},
		"unnamed":           {strict.Name, func(*corev1.PersistentVolumeClaim) {}, []string{"requires", "volume_name"}},
		"restore-of-path":   {s.class, withAnnotations(map[string]string{wellknown.AnnotationRestore: "../x"}), []string{wellknown.AnnotationRestore, "uid"}},
		"modes-and-labels": {s.class, func(c *corev1.PersistentVolumeClaim) {
			withModes(corev1.ReadWriteOncePod)(c)
			called("Data")(c)
		}, []string{"ReadWriteOncePod", "Data"}},
	}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for name, tt := range tests {
		claims[name] = s.NewClaim(name, tt.class, tt.edit)
	}
	for name, tt := range tests {
		s.awaitRejected(claims[name], tt.words...)
	}
	s.pass("meanwhile", slices.Collect(maps.Values(claims))...)
	for name := range tests {
		s.wantTold(claims[name], wellknown.EventProvisioningFailed, 1)
		if s.see(claims[name]).Status.Phase != corev1.ClaimPending {
			t.Errorf("claim %s is bound", name)
		}
	}
	for _, run := range s.Kubelet.Runs() {
		for name := range tests {
			if hasWords(run.Operations, []string{string(claims[name].UID)}) {
				t.Errorf("Job %s has an operation for claim %s", run.Job, name)
			}
		}
	}
}

func withModes(modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.AccessModes = modes }
}

// TestRefusalEndsWithTheWorld has refusals end by labels of the claim and by file systems.
func TestRefusalEndsWithTheWorld(t *testing.T) {
	s := newClaimsWorld(t)
	labeled := s.NewClass("labeled", map[string]string{"path_pattern": "${.PVC.labels.app}/${volume_name}"})
	annotated := s.NewClass("annotated", map[string]string{"path_pattern": "${.PVC.annotations.example.com/dir}/${volume_name}"})
	tagged := s.NewClass("tagged", map[string]string{"default_file_system_id": s.fileSystem, "file_system_tags": "team=blue"})
	zoned := s.NewClass("zoned", nil, func(class *storagev1.StorageClass) {
		class.AllowedTopologies = topology(corev1.LabelTopologyZone, "us-east-1b")
	})
	s.AwaitRoot(s.fileSystem)
	byLabel, byAnnotation := s.NewClaim("by-label", labeled.Name), s.NewClaim("by-annotation", annotated.Name)
	byTag, byZone := s.NewClaim("by-tag", tagged.Name), s.NewClaim("by-zone", zoned.Name)
	s.awaitRejected(byLabel, "${.PVC.labels.app}", "empty")
	s.awaitRejected(byAnnotation, "${.PVC.annotations.example.com/dir}", "empty")
	s.awaitRejected(byTag, s.fileSystem, "lacks the tags", "team=blue")
	s.awaitRejected(byZone, s.fileSystem, "without a mount target", "us-east-1b")

	s.annotate(byAnnotation, map[string]any{"example.com/dir": "../../shop"})
	s.awaitRejected(byAnnotation, annotated.Name, "component ..")
	s.annotate(byAnnotation, map[string]any{"example.com/dir": "shop/front"})
	s.label(byLabel, map[string]any{"app": "shop"})
	for claim, want := range map[*corev1.PersistentVolumeClaim]string{
		byLabel: "/shop/by-label-" + string(byLabel.UID), byAnnotation: "/shop/front/by-annotation-" + string(byAnnotation.UID),
	} {
		if v := s.await(claim); v.path != want {
			t.Errorf("the path is %s, want %s", v.path, want)
		}
	}
	s.changeFileSystem(s.fileSystem, func(fs *efs.FileSystem) {
		fs.Tags = map[string]string{"team": "blue"}
		target := fs.MountTargets[0]
		target.ID, target.SubnetID, target.ZoneName, target.ZoneID = "fsmt-b", "subnet-b", "us-east-1b", "use1-az2"
		target.Address = target.Address.Next()
		fs.MountTargets = append(fs.MountTargets, target)
	})
	for _, claim := range []*corev1.PersistentVolumeClaim{byLabel, byTag, byZone} {
		s.await(claim)
		s.wantNotRejected(claim)
		s.wantTold(claim, wellknown.EventProvisioningFailed, 1)
	}
	s.wantNotRejected(byAnnotation)
	s.wantTold(byAnnotation, wellknown.EventProvisioningFailed, 2)
}
