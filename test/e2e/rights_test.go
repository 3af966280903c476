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

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// right is one thing that a service account may do. An empty object is any.
type right struct {
	account, group, resource, object, verb string
}

func (r right) String() string {
	return strings.TrimSpace(r.account + " may " + r.verb + " " + r.resource + "." + r.group + " " + r.object)
}

// rightsAreUsed compares what the overlay grants with what the apiserver saw. The scenarios
// before it must have brought every right to use.
func rightsAreUsed(l *lab) {
	granted := l.grantedRights()
	if len(granted) == 0 {
		l.Fatal("the overlay grants nothing")
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

// needs are the rights of which a request needs one, and those that it stands for: caches watch
// with the whole of their objects first, but list them where an apiserver cannot do that.
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

// request is what is read of an entry of the audit log.
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

// grantedRights takes the roles of the overlay apart, one right for each verb and object.
func (l *lab) grantedRights() map[right]bool {
	l.Helper()
	rules := map[string][]rbacv1.PolicyRule{} // by kind and name
	accounts := map[string][]string{}         // the same
	for text := range strings.SplitSeq(l.kubectl("kustomize", "deploy/kustomize/overlays/lab"), "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []rbacv1.PolicyRule
			RoleRef  rbacv1.RoleRef
			Subjects []rbacv1.Subject
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			continue // of another shape: rules of admission are lists of other things
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

// agentIsHeldBack: what RBAC cannot say, admission does.
func agentIsHeldBack(l *lab) {
	const agent = "--as=system:serviceaccount:" + system + ":efs-stunnel"
	onNode1 := "--as-user-extra=authentication.kubernetes.io/node-name=node-1"
	l.kubectl("taint", "node", "node-1", "e2e.example.com/foreign=:PreferNoSchedule")
	l.Cleanup(func() { l.kubectl("taint", "node", "node-1", "e2e.example.com/foreign:PreferNoSchedule-") })
	const noTaints = `[{"op": "replace", "path": "/spec/taints", "value": []}]`
	for what, args := range map[string][]string{
		"no node but its own":       {agent, onNode1, "patch", "node", "node-2", "--type=json", "-p", `[{"op": "add", "path": "/metadata/annotations/x", "value": "y"}]`},
		"its startup taint only":    {agent, onNode1, "patch", "node", "node-1", "--type=json", "-p", noTaints},
		"nothing of its node but":   {agent, onNode1, "patch", "node", "node-1", "-p", `{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`},
		"volumes on 127.0.0.1 only": {"--as=system:serviceaccount:" + system + ":efs-manager", "apply", "--server-side", "-f", "-"},
	} {
		l.wantRefused(what, args)
	}
}

// wantRefused runs a command whose refusal must say something.
func (l *lab) wantRefused(what string, args []string) {
	l.Helper()
	const volume = `{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "e2e-root"}, "spec": {
"accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/"}}}`
	told, err := l.tryAll(volume, "bin/lab", append([]string{"kubectl", "--"}, args...)...)
	if err == nil || !strings.Contains(told, what) {
		l.Errorf("kubectl %s: want a refusal that says %q, got %v and %s", strings.Join(args, " "), what, err, told)
	}
}
