//go:build acceptance

package e2e

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
)

// userSettings reads the settings, which are variables, because make passes them on.
func userSettings(t *testing.T) settings {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	name := cmp.Or(os.Getenv("NAMESPACE"), "efs-acceptance")
	return settings{
		root: root, client: []string{"kubectl"},
		class: cmp.Or(os.Getenv("CLASS"), "efs-stunnel"), image: cmp.Or(os.Getenv("IMAGE"), "busybox"),
		sharedPoint: os.Getenv("ACCESS_POINT"),
		prefix:      name + "-", derived: name,
		labels:   runLabel + ": " + name + ", pod-security.kubernetes.io/enforce: baseline",
		evidence: ofNamespaces,
	}
}

// ofNamespaces returns the commands that show what a scenario's namespaces have.
func ofNamespaces(namespaces []string) (commands [][]string) {
	for _, ns := range namespaces {
		commands = append(commands, []string{"-n", ns, "get", "pods,pvc", "-o", "wide"},
			[]string{"-n", ns, "get", "events", "--sort-by=.lastTimestamp"})
	}
	return commands
}

// checkSettings ends the run before anything is made, if a setting is wrong.
func (c *cluster) checkSettings() (class storagev1.StorageClass, status inspect.Status) {
	c.Helper()
	if wrong := validation.IsDNS1123Label(c.prefix + "statefulset"); wrong != nil {
		c.Fatalf("NAMESPACE=%s: it begins the names of namespaces: %s", c.derived, strings.Join(wrong, ", "))
	}
	fileSystem, point, _ := strings.Cut(c.sharedPoint, "::")
	if c.sharedPoint != "" && (!strings.HasPrefix(fileSystem, "fs-") || !strings.HasPrefix(point, "fsap-")) {
		c.Fatalf("ACCESS_POINT=%s: want FILE-SYSTEM::ACCESS-POINT, for example fs-0123456789abcdef0::fsap-0123456789abcdef0", c.sharedPoint)
	}
	out, errOut, err := c.start("", "bin/kubectl-efs_stunnel", []string{"status", "-o", "json"})
	if jsonErr := json.Unmarshal([]byte(out), &status); jsonErr != nil { // it fails for a problem, too
		c.Fatalf("reading the installation in the cluster of KUBECONFIG: %v: %s", cmp.Or(err, jsonErr), errOut)
	}
	c.system = status.Namespace
	if missing := c.missingRights(basicRights); missing != "" {
		c.Fatalf("the user of KUBECONFIG has no right to %s", missing)
	}
	return c.findClass(status.Provisioner), status
}

// findClass returns the class that is to be tested, if it is one of the product's.
func (c *cluster) findClass(provisioner string) storagev1.StorageClass {
	c.Helper()
	var all storagev1.StorageClassList
	if err := json.Unmarshal([]byte(c.kubectl("get", "storageclasses", "-o", "json")), &all); err != nil {
		c.Fatal(err)
	}
	var usable []string
	for _, class := range all.Items {
		if class.Provisioner != provisioner {
			continue
		}
		if class.Name == c.class {
			return class
		}
		usable = append(usable, class.Name)
	}
	c.Fatalf("CLASS=%s: it is no storage class with the provisioner %s; those are %q", c.class, provisioner, usable)
	return storagev1.StorageClass{}
}

// basicRights are the rights without which no scenario can run.
var basicRights = []permission{
	{"create", "namespaces", ""}, {"delete", "namespaces", ""},
	{"create", "storageclasses.storage.k8s.io", ""}, {"delete", "storageclasses.storage.k8s.io", ""},
	{"list", "persistentvolumes", ""}, {"list", "nodes", ""},
	{"create", "persistentvolumeclaims -A", ""}, {"create", "pods -A", ""}, {"create", "pods --subresource=exec -A", ""},
	{"create", "statefulsets.apps -A", ""},
}
