//go:build e2e || acceptance

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runLabel is on all that a run makes outside of its namespaces, and on these. Its value names the run.
const runLabel = "efs-stunnel.gnuthought.com/acceptance"

// newClass makes a class with the parameters of the cluster's, and others, that is deleted at the end of the
// scenario. Deleted data does not stay, directories are in no others that would stay, and claims need no pod
// to be bound.
func (c *cluster) newClass(name string, parameters map[string]string) string {
	c.Helper()
	var class storagev1.StorageClass
	if err := json.Unmarshal([]byte(c.kubectl("get", "storageclass", c.class, "-o", "json")), &class); err != nil {
		c.Fatal(err)
	}
	deletes, immediate, grows := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate, true
	class.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: map[string]string{runLabel: c.derived}}
	class.ReclaimPolicy, class.VolumeBindingMode, class.AllowVolumeExpansion = &deletes, &immediate, &grows
	class.Parameters = maps.Clone(class.Parameters)
	if class.Parameters == nil {
		class.Parameters = map[string]string{}
	}
	class.Parameters["keep_deleted"] = "0"
	class.Parameters["require_volume_name"] = "false"
	class.Parameters["path_pattern"] = c.derived + "-${.PVC.namespace}-${volume_name}"
	maps.Copy(class.Parameters, parameters)
	text, err := json.Marshal(class)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		c.waitForNoVolume(func(class, _ string) bool { return class == name }) // the manager reads their class
		c.kubectl("delete", "storageclass", name, "--ignore-not-found")
	})
	c.apply("default", string(text))
	return name
}

// waitForVolume waits until a claim is bound, and returns its volume's name.
func (c *cluster) waitForVolume(namespace, claim string) (volume string) {
	c.Helper()
	c.wait(namespace, "jsonpath={.status.phase}=Bound", "pvc/"+claim)
	return c.kubectl("-n", namespace, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
}

func (c *cluster) fileSystemOf(volume string) string {
	c.Helper()
	return c.kubectl("get", "pv", volume, "-o", `jsonpath={.metadata.annotations.efs-stunnel\.gnuthought\.com/file-system-id}`)
}

func (c *cluster) pathOf(volume string) string {
	c.Helper()
	return c.kubectl("get", "pv", volume, "-o", "jsonpath={.spec.nfs.path}")
}

// expectOnServer expects what look returns, where it can be asked.
func (c *cluster) expectOnServer(volume, fileSystem, path, want string) {
	c.Helper()
	if c.look == nil {
		return
	}
	if got := c.look(volume, fileSystem, path); got != want {
		c.Errorf("the server has %s of %s at %q, want %q", volume, path, got, want)
	}
}

// waitForNoVolume waits until no volume has such a class and namespace of its claim.
func (c *cluster) waitForNoVolume(such func(class, namespace string) bool) {
	c.Helper()
	const template = `jsonpath={range .items[*]}{.metadata.name} {.spec.claimRef.namespace} {.spec.storageClassName}{"\n"}{end}`
	c.eventually("volumes to go", func() string {
		var left []string
		for line := range strings.Lines(c.kubectl("get", "pv", "-o", template)) {
			fields := append(strings.Split(strings.TrimRight(line, "\n"), " "), "", "")
			if such(fields[2], fields[1]) {
				left = append(left, fields[0])
			}
		}
		if len(left) > 0 {
			return "there are still " + strings.Join(left, ", ")
		}
		return ""
	})
}

// deleteClaim deletes a claim that no pod uses, and waits until its volume is deleted, too.
func (c *cluster) deleteClaim(namespace, claim, volume string) {
	c.Helper()
	c.kubectl("-n", namespace, "delete", "pvc", claim, "--timeout="+limit.String())
	c.wait(namespace, "delete", "pv/"+volume)
}

// startUser creates the pod user, in place of an earlier one, and waits until it runs.
func (c *cluster) startUser(namespace string, claims ...string) {
	c.Helper()
	c.deleteUser(namespace)
	c.apply(namespace, userAnywhere(claims...))
	c.wait(namespace, "condition=Ready", "pod/user")
}

func (c *cluster) deleteUser(namespace string) {
	c.Helper()
	c.kubectl("-n", namespace, "delete", "pod", "user", "--ignore-not-found", "--timeout="+limit.String())
}

// waitForSuccessor waits until a deleted claim or volume is replaced by one that is bound.
func (c *cluster) waitForSuccessor(namespace, object, deleted string) {
	c.Helper()
	c.eventually("another "+object, func() string {
		now, err := c.tryKubectl("", "-n", namespace, "get", object, "-o", "jsonpath={.metadata.uid} {.status.phase}")
		if err != nil || strings.HasPrefix(now, deleted) || !strings.HasSuffix(now, " Bound") {
			return "there is " + now
		}
		return ""
	})
}

// expectRecreated deletes a SharedVolume's claim or volume, and waits until it is created again.
func (c *cluster) expectRecreated(namespace, object string) {
	c.Helper()
	uid := c.kubectl("-n", namespace, "get", object, "-o", "jsonpath={.metadata.uid}")
	c.kubectl("-n", namespace, "delete", object, "--wait=false")
	c.waitForSuccessor(namespace, object, uid)
	c.wait(namespace, "condition=Ready", "sv", "--all")
}

// require skips the scenario where the cluster lacks what it needs.
func (c *cluster) require(is bool, format string, args ...any) {
	c.Helper()
	if is {
		return
	}
	why := fmt.Sprintf(format, args...)
	c.found.Notes = append(c.found.Notes, why)
	c.Skip(why)
}

// requireRights skips the scenario for a user who may not do what it does.
func (c *cluster) requireRights(rights ...permission) {
	c.Helper()
	missing := c.missingRights(rights)
	c.require(missing == "", "you have no right to %s", missing)
}

// permission is a verb, a resource, and the namespace of the latter.
type permission struct{ verb, resource, namespace string }

func (c *cluster) missingRights(rights []permission) string {
	c.Helper()
	var missing []string
	for _, r := range rights {
		args := append([]string{"auth", "can-i", "--quiet", r.verb}, strings.Fields(r.resource)...)
		if r.namespace != "" {
			args = append(args, "-n", r.namespace)
		}
		if _, err := c.tryKubectl("", args...); err != nil {
			missing = append(missing, r.verb+" "+r.resource)
		}
	}
	return strings.Join(missing, ", ")
}

// schedulable matches the lines of nodes that take any pod.
var schedulable = regexp.MustCompile(`(?m)^node:(?:PreferNoSchedule ?)*$`)

// requireAnotherNode skips the scenario where all pods run on one node.
func (c *cluster) requireAnotherNode() {
	c.Helper()
	nodes := c.kubectl("get", "nodes", "-o", `jsonpath={range .items[*]}node:{.spec.taints[*].effect}{"\n"}{end}`)
	usable := len(schedulable.FindAllString(nodes, -1)) // a cordoned node has a taint, too
	c.require(usable > 1, "it needs two nodes that take any pod, and the cluster has %d", usable)
}
