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

// The manager's ports without flags, which are also those of the policies before they become values.
const defaultBasePort, defaultPortCount = 20490, 1000

// field is a part of the base that is a value of the chart.
type field struct {
	object identity
	path   []any // keys and indices
	value  string
	keep   func(*values, any) // takes the default
}

// pod returns the path of a part of a workload's pods.
func pod(rest ...any) []any { return append([]any{"spec", "template", "spec"}, rest...) }

func fields() []field {
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
	return set(trees[agent], agentAffinity(), pod("affinity")...)
}

// agentAffinity returns the affinity of the agents, and of what does something for the same nodes.
func agentAffinity() conditional {
	return conditional{".Values.agent.affinity", verbatim("{{ toJson .Values.agent.affinity }}")}
}

// parameterize replaces what the values have.
func (s Spec) parameterize(trees map[identity]any) error {
	for _, f := range fields() {
		if err := set(trees[f.object], verbatim("{{ toJson .Values."+f.value+" }}"), f.path...); err != nil {
			return fmt.Errorf("%s: %w", f.object, err)
		}
	}
	if err := addPorts(trees); err != nil {
		return err
	}
	// After the flags of addPorts: of two equal flags, a program uses the last.
	if err := extendContainers(trees); err != nil {
		return err
	}
	if err := addAccounts(trees); err != nil {
		return err
	}
	for id, tree := range trees {
		trees[id] = s.replace(tree)
	}
	return keepObjects(trees)
}

// addPorts makes the manager, and the policies of the component admission, use one range of ports.
func addPorts(trees map[identity]any) error {
	const base, count = ".Values.ports.base", ".Values.ports.count"
	where := pod("containers", 0, "args")
	list, err := get(trees[manager], where...)
	if err != nil {
		return fmt.Errorf("%s: %w", manager, err)
	}
	args, _ := list.([]any)
	// Helm's numbers are of several types: int makes them comparable.
	args = append(args,
		conditional{fmt.Sprintf("ne (int %s) %d", base, defaultBasePort), verbatim("--base-stunnel-port={{ int " + base + " }}")},
		conditional{fmt.Sprintf("ne (int %s) %d", count, defaultPortCount), verbatim("--stunnel-port-count={{ int " + count + " }}")})
	if err := set(trees[manager], args, where...); err != nil {
		return fmt.Errorf("%s: %w", manager, err)
	}
	for _, policy := range []identity{"ValidatingAdmissionPolicy/efs-stunnel-host-ports", "ValidatingAdmissionPolicy/efs-stunnel-node-ports"} {
		c, ok := trees[policy].(conditional)
		if !ok {
			return fmt.Errorf("%s is not that of a component", policy)
		}
		for i, bound := range []string{"int " + base, "add " + base + " " + count + " -1"} { // first and last
			if err := set(c.value, verbatim("{{ "+bound+" | quote }}"), "spec", "variables", i, "expression"); err != nil {
				return fmt.Errorf("%s: %w", policy, err)
			}
		}
	}
	return nil
}

// extendContainers appends users' arguments and variables to those of the containers.
func extendContainers(trees map[identity]any) error {
	for _, c := range []struct {
		object identity
		index  int
		values string
	}{
		{manager, 0, ".Values.manager"},
		{agent, 0, ".Values.supervisor"},
		{agent, 1, ".Values.agent"},
	} {
		tree, err := get(trees[c.object], pod("containers", c.index)...)
		if err != nil {
			return fmt.Errorf("%s: %w", c.object, err)
		}
		container, ok := tree.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %T is no container", c.object, tree)
		}
		for _, key := range []string{"args", "env"} {
			container[key] = extend(container[key], c.values+"."+key)
		}
	}
	return nil
}

// extend appends a value's items to a list, which may be absent, or there only with a component.
func extend(list any, value string) any {
	switch l := list.(type) {
	case []any:
		return append(l, splice(value))
	case conditional:
		var items []any
		added, _ := l.value.([]any)
		for _, item := range added {
			items = append(items, conditional{l.when, item})
		}
		return conditional{"or (" + l.when + ") " + value, append(items, splice(value))}
	}
	return conditional{value, []any{splice(value)}}
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
	return extendReadAhead(trees, pull)
}

// extendReadAhead makes the DaemonSet of the component pull its image without a service account of its own, and
// run where the agents do.
func extendReadAhead(trees map[identity]any, pull conditional) error {
	const readAhead = identity("DaemonSet/efs-read-ahead")
	c, ok := trees[readAhead].(conditional)
	if !ok {
		return fmt.Errorf("%s is not that of a component", readAhead)
	}
	if err := set(c.value, pull, pod("imagePullSecrets")...); err != nil {
		return fmt.Errorf("%s: %w", readAhead, err)
	}
	return set(c.value, agentAffinity(), pod("affinity")...)
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
				_, digest, _ := strings.Cut(t, "@")
				return verbatim(fmt.Sprintf("{{ include %q (dict %q .Values.images.%s %q %q %q %q) | quote }}",
					"efs-stunnel.image", "image", value, "tag", s.tag(), "digest", digest))
			}
		}
		return strings.ReplaceAll(t, "system:serviceaccount:efs-stunnel:", "system:serviceaccount:"+namespaceToken+":")
	}
	return tree
}
