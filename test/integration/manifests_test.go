//go:build integration

package integration_test

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// manifest is a claim with its class, as people write them: for other provisioners, by habit, or by mistake.
type manifest struct {
	name       string // of both
	parameters map[string]string
	options    string // mountOptions of the class
	edits      []func(*corev1.PersistentVolumeClaim)

	refused []string // parts of the sentence; nil for a claim that is bound
	event   string   // a part of the event of a claim that is bound
	check   func(provisioned) bool
}

func reading(modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = modes }
}

func sized(size string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
}

func withExpression(c *corev1.PersistentVolumeClaim) {
	c.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
}

func hasOptions(options ...string) func(provisioned) bool {
	return func(p provisioned) bool {
		return !slices.ContainsFunc(options, func(option string) bool { return !slices.Contains(p.volume.Spec.MountOptions, option) })
	}
}

func isReadOnly(p provisioned) bool { return hasOptions("ro")(p) && p.volume.Spec.NFS.ReadOnly }

func isWritable(p provisioned) bool { return !hasOptions("ro")(p) && !p.volume.Spec.NFS.ReadOnly }

func labeled(key, value string) func(provisioned) bool {
	return func(p provisioned) bool { return p.volume.Labels[key] == value }
}

func manifestsOfPeople(f *fixture) []manifest {
	edits := func(edits ...func(*corev1.PersistentVolumeClaim)) []func(*corev1.PersistentVolumeClaim) { return edits }
	label := testenv.WithMatchLabel
	ofGroup := func(mode os.FileMode) func(provisioned) bool {
		return func(p provisioned) bool {
			info, err := os.Stat(f.local(p.path))
			f.check(err)
			stat, ok := info.Sys().(*syscall.Stat_t)
			return ok && stat.Gid == 33 && info.Mode() == os.ModeDir|mode
		}
	}
	return []manifest{
		{name: "readers", edits: edits(reading(corev1.ReadOnlyMany), label("volume_name", "published")), event: "mounted read-only", check: isReadOnly},
		{name: "readers-and-writers", edits: edits(reading(corev1.ReadOnlyMany, corev1.ReadWriteMany)), check: isWritable},
		{name: "one-node", edits: edits(reading(corev1.ReadWriteOnce)), check: isWritable},
		{name: "one-pod", edits: edits(reading(corev1.ReadWriteOncePod)), check: isWritable},
		{name: "one-pod-of-a-name", edits: edits(reading(corev1.ReadWriteOncePod), label("volume_name", "x")), refused: []string{"ReadWriteOncePod", "leave out the label volume_name"}},

		{name: "group-0770", parameters: map[string]string{"gid": "33", "directory_perms": "0770"}, check: ofGroup(os.ModeSetgid | 0o770)},
		{name: "group-2770", parameters: map[string]string{"gid": "33", "directory_perms": "2770"}, check: ofGroup(os.ModeSetgid | 0o770)},
		{name: "group-0750", parameters: map[string]string{"gid": "33", "directory_perms": "0750"}, check: ofGroup(0o750)},

		{name: "own-labels", edits: edits(label("app", "jenkins"), label("release", "ci")), event: "labels app=jenkins,release=ci are only copied", check: labeled("release", "ci")},
		{name: "reserved-for", edits: edits(label("reserved-for", "minio")), event: "a volume that has them and is created later is not waited for", check: labeled("reserved-for", "minio")},
		{name: "helm-labels", edits: edits(label("app.kubernetes.io/instance", "minio")), refused: []string{"app.kubernetes.io/instance", "leave it out: labels of kubernetes.io are not copied"}},
		{name: "expressions", edits: edits(withExpression), refused: []string{"matchExpressions", "write matchLabels"}},
		{name: "capitals", edits: edits(label("volume_name", "My.App")), refused: []string{"My.App", "write a-z, 0-9, _ and - only"}},
		{name: "misspelled-name", edits: edits(label("volumeName", "reports")), refused: []string{"label volumeName", "write volume_name"}},
		{name: "misspelled-policy", edits: edits(label("reclaim-policy", "Retain")), refused: []string{"label reclaim-policy", "write reclaim_policy"}},

		{name: "milli", edits: edits(sized("500m"))}, {name: "fraction", edits: edits(sized("0.1"))}, {name: "huge", edits: edits(sized("16Ei"))},

		{name: "options-of-aws", options: "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,_netdev,noatime", check: hasOptions("noatime", "_netdev", "rsize=1048576")},
		{name: "options-of-nfs", options: "async,lookupcache=pos,actimeo=1,nolock,nosharecache", check: hasOptions("lookupcache=pos", "actimeo=1", "nolock")},
		{name: "options-of-fstab", options: "defaults,nofail,intr,x-systemd.automount,retry=5", check: hasOptions("nofail", "retry=5")},
		{name: "background", options: "rw,bg,hard", refused: []string{`mount option "bg"`, "leave it out", "the node's own disk"}},
		{name: "spaces", options: "port = 34030", refused: []string{"port = 34030", "printable ASCII without spaces"}},
		{name: "nfs-3", options: "vers=3,nolock", refused: []string{"vers=3", "write vers=4.1 or vers=4.0"}},
		{name: "protocol", options: "tcp", refused: []string{`"tcp"`, "the provisioner sets port, protocol and address"}},
		{name: "connections", options: "nconnect=4", refused: []string{"nconnect=4", "does not support several connections"}},
		{name: "no-option", options: "noatimes", refused: []string{"noatimes", "NFS 4 has no such mount option"}},

		{name: "csi-driver", parameters: map[string]string{"provisioningMode": "efs-ap", "basePath": "/dynamic", "directoryPerms": "700"}, refused: []string{"parameter fileSystemId is missing", "efs-ap requires it"}},
		{name: "csi-driver-without-mode", parameters: map[string]string{"basePath": "/dynamic", "directoryPerms": "700"}, refused: []string{"basePath", "use base_path", "use directory_perms"}},
		{name: "nfs-csi", parameters: map[string]string{"server": "nfs.example.com", "share": "/"}, refused: []string{`"server"`, "use default_file_system_id"}},
	}
}

// TestManifestsOfPeople are bound as their authors expect, or refused with what to write.
func TestManifestsOfPeople(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	f.WaitForRootClaim(f.fileSystem)
	restored := f.NewClaim("velero", f.class, testenv.WithMatchLabel("velero.io/dynamic-pv-restore", "team.velero.x7k2p"))
	all := manifestsOfPeople(f)
	claims := make([]*corev1.PersistentVolumeClaim, len(all))
	for i, m := range all {
		class := f.NewClass(m.name, m.parameters, func(c *storagev1.StorageClass) {
			if m.options != "" {
				c.MountOptions = strings.Split(m.options, ",")
			}
		})
		claims[i] = f.NewClaim(m.name, class.Name, m.edits...)
	}
	for i, m := range all {
		if m.refused != nil {
			f.waitForRejection(claims[i], m.refused...)
			continue
		}
		p := f.waitForProvisioned(claims[i])
		if m.check != nil && !m.check(p) {
			f.Errorf("claim %s has volume %+v", m.name, p.volume)
		}
		f.waitForEvent(p.claim, wellknown.EventProvisioningSucceeded, m.event)
	}
	if found := f.getClaim(restored); found.Status.Phase != corev1.ClaimPending {
		t.Errorf("the claim that Velero restores is %s", found.Status.Phase)
	}
	f.expectEventCount(restored, 0, wellknown.EventProvisioning, wellknown.EventProvisioningSucceeded, wellknown.EventProvisioningFailed)
}

// TestSharedDirectoryIsReported on the claim that joins it, as a StatefulSet with a volume_name has them.
func TestSharedDirectoryIsReported(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	f.provision("data-minio-0", f.class, withVolumeName("minio"))
	second := f.provision("data-minio-1", f.class, withVolumeName("minio"))
	f.waitForEvent(second.claim, wellknown.EventProvisioningSucceeded, "which claim data-minio-0 has, too")
}

// TestHarmfulMountOptionOfAVolumeIsReported on the volume and on the table.
func TestHarmfulMountOptionOfAVolumeIsReported(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	p := f.provision("data", f.class)
	f.patchVolume(p.volume.Name, `{"spec":{"mountOptions":["vers=4.1","bg"]}}`)
	f.waitForEvent(p.volume, wellknown.EventMountOptionHarmful, `mount option "bg"`, "the node's own disk")
}
