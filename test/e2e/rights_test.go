//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// right is one right of a service account. An empty object name is any.
type right struct {
	account, group, resource, object, verb string
}

func (r right) String() string {
	return strings.TrimSpace(r.account + " may " + r.verb + " " + r.resource + "." + r.group + " " + r.object)
}

// usedInLongRuns are rights that only make e2e-long is sure to use: events that are repeated, finished Jobs that hold a
// deleted root claim, claims that grow, surveys, and file systems that leave.
var usedInLongRuns = []right{
	{account: "efs-stunnel", resource: "events", verb: "patch"},
	{account: "efs-manager", resource: "events", verb: "patch"},
	{account: "efs-manager", group: "batch", resource: "jobs", verb: "delete"},
	{account: "efs-manager", group: "efs-stunnel.gnuthought.com", resource: "filesystems", verb: "delete"},
	{account: "efs-manager", resource: "persistentvolumeclaims/status", verb: "patch"},
	{account: "efs-manager", resource: "pods/log", verb: "get"},
}

// rightsAreUsed compares the rights that the overlay grants with the apiserver's audit log. The scenarios
// before it must have used every right.
func rightsAreUsed(l *lab) {
	granted := l.grantedRights()
	if len(granted) == 0 {
		l.Fatal("the overlay grants nothing")
	}
	if !*long {
		for _, r := range usedInLongRuns {
			delete(granted, r)
		}
	}
	for _, request := range l.requests() {
		if !strings.HasPrefix(request.User.Username, "system:serviceaccount:"+system+":") || request.ImpersonatedUser != nil {
			continue
		}
		r := request.right()
		if request.Annotations["authorization.k8s.io/decision"] == "forbid" {
			l.Errorf("missing: %s (%s)", r, request.RequestURI)
			continue
		}
		for _, r := range r.needs() {
			delete(granted, r)
		}
	}
	for _, unused := range slices.SortedFunc(maps.Keys(granted), func(a, b right) int { return strings.Compare(a.String(), b.String()) }) {
		l.Errorf("granted and never used: %s", unused)
	}
}

// needs returns the rights that a request proves to be needed: caches get their first objects by a watch, but
// list them where an apiserver cannot do that.
func (r right) needs() []right {
	verbs := []string{r.verb}
	if r.verb == "watch" {
		verbs = append(verbs, "list")
	}
	var rights []right
	for _, verb := range verbs {
		for _, object := range []string{r.object, ""} {
			rights = append(rights, right{r.account, r.group, r.resource, object, verb})
		}
	}
	return rights
}

// request is an entry of the audit log.
type request struct {
	Verb             string
	RequestURI       string
	User             struct{ Username string }
	ImpersonatedUser *struct{}
	ObjectRef        struct{ APIGroup, Resource, Subresource, Name string }
	Annotations      map[string]string
}

func (r request) right() right {
	_, account, _ := strings.Cut(r.User.Username, "system:serviceaccount:"+system+":")
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return right{account: account, group: r.ObjectRef.APIGroup, resource: resource, object: r.ObjectRef.Name, verb: r.Verb}
}

func (l *lab) requests() []request {
	l.Helper()
	file, err := os.Open(filepath.Join(l.dir, "logs", "audit.log"))
	if err != nil {
		l.Fatal(err)
	}
	defer file.Close()
	var all []request
	for decoder := json.NewDecoder(file); ; {
		var r request
		switch err := decoder.Decode(&r); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the apiserver is writing the last line
			return all
		case err != nil:
			l.Fatalf("reading the audit log: %v", err)
		}
		all = append(all, r)
	}
}

// grantedRights returns the rights of the installed roles, one for each verb and object.
func (l *lab) grantedRights() map[right]bool {
	l.Helper()
	rules := map[string][]rbacv1.PolicyRule{} // by kind and name
	accounts := map[string][]string{}         // the same
	objects := l.kubectl("kustomize", "deploy/kustomize/overlays/lab") + "\n---\n" + l.kubectl("kustomize", sharedVolumes)
	for text := range strings.SplitSeq(objects, "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []rbacv1.PolicyRule
			RoleRef  rbacv1.RoleRef
			Subjects []rbacv1.Subject
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			continue // rules of admission have another form
		}
		switch object.Kind {
		case "Role", "ClusterRole":
			rules[object.Kind+"/"+object.Metadata.Name] = object.Rules
		case "RoleBinding", "ClusterRoleBinding":
			key := object.RoleRef.Kind + "/" + object.RoleRef.Name
			for _, subject := range object.Subjects {
				accounts[key] = append(accounts[key], subject.Name)
			}
		}
	}
	granted := map[right]bool{}
	for key, list := range rules {
		for _, account := range accounts[key] {
			for _, rule := range list {
				for _, r := range rightsOf(account, rule) {
					granted[r] = true
				}
			}
		}
	}
	return granted
}

func rightsOf(account string, rule rbacv1.PolicyRule) []right {
	objects := rule.ResourceNames
	if len(objects) == 0 {
		objects = []string{""}
	}
	var rights []right
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, object := range objects {
				for _, verb := range rule.Verbs {
					rights = append(rights, right{account, group, resource, object, verb})
				}
			}
		}
	}
	return rights
}

// agentIsLimitedByAdmission: where RBAC is too coarse. The agent may remove its startup taint from its node,
// and change nothing else. kubectl would read a node before it patches it, which the agent may not.
func agentIsLimitedByAdmission(l *lab) {
	l.kubectl("taint", "node", "node-1", "e2e.example.com/foreign=:PreferNoSchedule", startupTaint+"=:NoSchedule")
	l.Cleanup(func() { l.kubectl("taint", "node", "node-1", "e2e.example.com/foreign:PreferNoSchedule-") })
	l.waitForStartupTaintRemoved("node-1")
	agent := l.clientOf("efs-stunnel", "node-1").CoreV1().Nodes()
	for want, attempt := range map[string]struct {
		node, patch string
		kind        types.PatchType
	}{
		"no node but its own":     {"node-2", `[{"op": "add", "path": "/metadata/annotations/x", "value": "y"}]`, types.JSONPatchType},
		"its startup taint only":  {"node-1", `[{"op": "replace", "path": "/spec/taints", "value": []}]`, types.JSONPatchType},
		"nothing of its node but": {"node-1", `{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`, types.MergePatchType},
	} {
		_, err := agent.Patch(l.Context(), attempt.node, attempt.kind, []byte(attempt.patch), metav1.PatchOptions{})
		l.expectRefusal(err, want)
	}
	root := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-root"},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
		},
	}
	_, err := l.clientOf("efs-manager", "node-1").CoreV1().PersistentVolumes().Create(l.Context(), root, metav1.CreateOptions{})
	l.expectRefusal(err, "volumes on 127.0.0.1 only")
}

// clientOf has the rights of a service account whose pod is on a node.
func (l *lab) clientOf(account, node string) kubernetes.Interface {
	l.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.dir, "kubeconfig"))
	if err != nil {
		l.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + system + ":" + account,
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {node}},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		l.Fatal(err)
	}
	return client
}

func (l *lab) expectRefusal(err error, what string) {
	l.Helper()
	if err == nil || !strings.Contains(err.Error(), what) {
		l.Errorf("got %v, want a refusal that says %q", err, what)
	}
}
