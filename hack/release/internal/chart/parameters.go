package chart

import (
	"fmt"
	"slices"
	"strings"
)

const (
	manager = identity("Deployment/efs-manager")
	agent   = identity("DaemonSet/efs-stunnel")
	class   = identity("StorageClass/efs-stunnel")
)

// field is a part of the base that is a value of the chart.
type field struct {
	object identity
	path   []any // keys and indices
	value  string
	keep   func(*values, any) // takes the default
}

func fields() []field {
	pod := func(rest ...any) []any { return append([]any{"spec", "template", "spec"}, rest...) }
	return []field{
		{manager, []any{"spec", "replicas"}, "manager.replicas", func(v *values, d any) { v.Replicas = d }},
		{manager, pod("nodeSelector"), "manager.nodeSelector", func(v *values, d any) { v.ManagerNodeSelector = d }},
		{manager, pod("tolerations"), "manager.tolerations", func(v *values, d any) { v.ManagerTolerations = d }},
		{manager, pod("containers", 0, "resources"), "manager.resources", func(v *values, d any) { v.ManagerResources = d }},
		{agent, pod("containers", 0, "resources"), "supervisor.resources", func(v *values, d any) { v.SupervisorResources = d }},
		{agent, pod("containers", 1, "resources"), "agent.resources", func(v *values, d any) { v.AgentResources = d }},
		{class, []any{"parameters"}, "storageClass.parameters", func(v *values, d any) { v.Parameters = d }},
		{class, []any{"reclaimPolicy"}, "storageClass.reclaimPolicy", nil},
	}
}

// get returns a part of a tree.
func get(tree any, path ...any) (any, error) {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			object, _ := tree.(map[string]any)
			if tree = object[s]; tree == nil {
				return nil, fmt.Errorf("there is no %v of %v", s, path)
			}
		case int:
			list, _ := tree.([]any)
			if s >= len(list) {
				return nil, fmt.Errorf("there is no item %d of %v", s, path)
			}
			tree = list[s]
		}
	}
	return tree, nil
}

// set replaces a key of an object in a tree. Objects in the tree may be those of kustomize: they are
// rendered anew for each chart.
func set(tree any, value any, path ...any) error {
	last, isKey := path[len(path)-1].(string)
	parent, err := get(tree, path[:len(path)-1]...)
	if err != nil {
		return err
	}
	object, ok := parent.(map[string]any)
	if !ok || !isKey {
		return fmt.Errorf("%v is no key of an object", path)
	}
	object[last] = value
	return nil
}

// takeEKS makes values of what the overlay for EKS adds to the base.
func takeEKS(trees map[identity]any, v *values) error {
	const tags = "--file-system-tags="
	args, err := get(trees[manager], "spec", "template", "spec", "containers", 0, "args")
	if err != nil {
		return err
	}
	list, _ := args.([]any)
	found := slices.IndexFunc(list, func(item any) bool {
		c, ok := item.(conditional)
		text, isText := c.value.(string)
		return ok && isText && strings.HasPrefix(text, tags)
	})
	if found < 0 {
		return fmt.Errorf("the overlay for EKS does not add %s to the manager", tags)
	}
	v.FileSystemTags = strings.TrimPrefix(list[found].(conditional).value.(string), tags) //nolint:errcheck,forcetypeassert // as above
	list[found] = conditional{".Values.fileSystemTags", verbatim(`{{ printf "` + tags + `%s" .Values.fileSystemTags | quote }}`)}

	affinity, err := get(trees[agent], "spec", "template", "spec", "affinity")
	if err != nil {
		return fmt.Errorf("overlay for EKS: %w", err)
	}
	c, ok := affinity.(conditional)
	if !ok {
		return fmt.Errorf("the affinity of the agents is in the base, not in the overlay for EKS")
	}
	v.Affinity = c.value
	taken := conditional{".Values.agent.affinity", verbatim("{{ toJson .Values.agent.affinity }}")}
	return set(trees[agent], taken, "spec", "template", "spec", "affinity")
}

// parameterize replaces what the values have.
func (s Spec) parameterize(trees map[identity]any) error {
	for _, f := range fields() {
		if err := set(trees[f.object], verbatim("{{ toJson .Values."+f.value+" }}"), f.path...); err != nil {
			return fmt.Errorf("%s: %w", f.object, err)
		}
	}
	for _, l := range []struct {
		object identity
		index  int
		key    string
		value  string
	}{
		{manager, 0, "args", "manager.args"},
		{manager, 0, "env", "manager.env"},
		{agent, 1, "args", "agent.args"},
		{agent, 1, "env", "agent.env"},
	} {
		where := []any{"spec", "template", "spec", "containers", l.index, l.key}
		list, err := get(trees[l.object], where...)
		if err != nil {
			return fmt.Errorf("%s: %w", l.object, err)
		}
		items, _ := list.([]any)
		if err := set(trees[l.object], append(items, splice(".Values."+l.value)), where...); err != nil {
			return fmt.Errorf("%s: %w", l.object, err)
		}
	}
	if err := addAccounts(trees); err != nil {
		return err
	}
	for id, tree := range trees {
		trees[id] = s.replace(tree)
	}
	return keepObjects(trees)
}

// addAccounts adds what registries and AWS need to the service accounts.
func addAccounts(trees map[identity]any) error {
	const secrets = ".Values.imagePullSecrets"
	pull := conditional{secrets, verbatim("{{ toJson " + secrets + " }}")}
	for account, value := range map[identity]string{
		"ServiceAccount/efs-manager": "manager", "ServiceAccount/efs-stunnel": "agent", "ServiceAccount/efs-worker": "",
	} {
		if err := set(trees[account], pull, "imagePullSecrets"); err != nil {
			return fmt.Errorf("%s: %w", account, err)
		}
		if value == "" {
			continue
		}
		annotations := ".Values." + value + ".serviceAccountAnnotations"
		added := conditional{annotations, verbatim("{{ toJson " + annotations + " }}")}
		if err := set(trees[account], added, "metadata", "annotations"); err != nil {
			return fmt.Errorf("%s: %w", account, err)
		}
	}
	c, ok := trees["DaemonSet/efs-read-ahead"].(conditional)
	if !ok {
		return fmt.Errorf("the DaemonSet efs-read-ahead, which has no service account of its own, is not that of a component")
	}
	return set(c.value, pull, "spec", "template", "spec", "imagePullSecrets")
}

// keepObjects makes the class and the namespace optional, and keeps what takes users' objects with it from
// being deleted with the release.
func keepObjects(trees map[identity]any) error {
	const policy = "helm.sh/resource-policy"
	namespace := identity("Namespace/efs-stunnel")
	if err := set(trees[namespace], map[string]any{policy: "keep"}, "metadata", "annotations"); err != nil {
		return fmt.Errorf("%s: %w", namespace, err)
	}
	trees[namespace] = conditional{".Values.createNamespace", trees[namespace]}

	isDefault := map[string]any{"storageclass.kubernetes.io/is-default-class": "true"}
	if err := set(trees[class], conditional{".Values.storageClass.default", isDefault}, "metadata", "annotations"); err != nil {
		return fmt.Errorf("%s: %w", class, err)
	}
	trees[class] = conditional{".Values.storageClass.create", trees[class]}

	const definition = identity("CustomResourceDefinition/sharedvolumes.efs-stunnel.gnuthought.com")
	c, ok := trees[definition].(conditional)
	if !ok {
		return fmt.Errorf("%s is not that of a component", definition)
	}
	return set(c.value, map[string]any{policy: "keep"}, "metadata", "annotations")
}

// replace puts values in place of the images and of the namespace, wherever these are.
func (s Spec) replace(tree any) any {
	switch t := tree.(type) {
	case conditional:
		return conditional{t.when, s.replace(t.value)}
	case []any:
		for i := range t {
			t[i] = s.replace(t[i])
		}
	case map[string]any:
		for key := range t {
			t[key] = s.replace(t[key])
		}
		if t["namespace"] == "efs-stunnel" {
			t["namespace"] = namespaceToken
		}
		if metadata, ok := t["metadata"].(map[string]any); ok && t["kind"] == "Namespace" {
			metadata["name"] = namespaceToken
		}
	case string:
		for value, name := range imageValues() {
			if t == s.Images[name] {
				return verbatim(`{{ include "efs-stunnel.image" .Values.images.` + value + ` | quote }}`)
			}
		}
		return strings.ReplaceAll(t, "system:serviceaccount:efs-stunnel:", "system:serviceaccount:"+namespaceToken+":")
	}
	return tree
}
