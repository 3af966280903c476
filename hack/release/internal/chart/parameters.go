package chart

import (
	"encoding/json"
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
}

// pod returns the path of a part of a workload's pods.
func pod(rest ...any) []any { return append([]any{"spec", "template", "spec"}, rest...) }

func fields() []field {
	all := []field{
		{manager, []any{"spec", "replicas"}, "manager.replicas"},
		{manager, pod("affinity"), "manager.affinity"},
		{manager, pod("containers", 0, "resources"), "manager.resources"},
		{agent, []any{"spec", "updateStrategy"}, "agent.updateStrategy"},
		{agent, pod("containers", 0, "resources"), "supervisor.resources"},
		{agent, pod("containers", 1, "resources"), "agent.resources"},
	}
	for _, key := range placement() {
		all = append(all, field{manager, pod(key), "manager." + key}, field{agent, pod(key), "agent." + key})
	}
	return all
}

// placement returns the keys of a pod that say where it runs, and before which others.
func placement() []string { return []string{"nodeSelector", "priorityClassName", "tolerations"} }

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

// part returns a key of a container or pod that is a value, or absent.
func part(value string) conditional {
	return conditional{value, verbatim("{{ toJson " + value + " }}")}
}

// managerArgs returns the arguments of the manager.
func managerArgs(trees map[identity]any) ([]any, error) {
	args, err := get(trees[manager], pod("containers", 0, "args")...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", manager, err)
	}
	list, _ := args.([]any)
	return list, nil
}

// flag returns a flag whose value is one of the chart's.
func flag(name, value string) verbatim {
	return verbatim(fmt.Sprintf(`{{ printf "%s%%v" (%s) | quote }}`, name, value))
}

// takeEKS makes values of what the overlay for EKS adds to the base.
func takeEKS(trees map[identity]any, v *values) error {
	list, err := managerArgs(trees)
	if err != nil {
		return err
	}
	for value, name := range map[string]string{"fileSystemTags": "--file-system-tags=", "usageInterval": "--usage-interval="} {
		found := slices.IndexFunc(list, func(item any) bool {
			c, ok := item.(conditional)
			text, isText := c.value.(string)
			return ok && isText && strings.HasPrefix(text, name)
		})
		if found < 0 {
			return fmt.Errorf("the overlay for EKS does not add %s to the manager", name)
		}
		v.Flags[value] = strings.TrimPrefix(list[found].(conditional).value.(string), name) //nolint:errcheck,forcetypeassert // as above
		list[found] = conditional{".Values." + value, flag(name, ".Values."+value)}
	}
	affinity, err := get(trees[agent], "spec", "template", "spec", "affinity")
	if err != nil {
		return fmt.Errorf("overlay for EKS: %w", err)
	}
	c, ok := affinity.(conditional)
	if !ok {
		return fmt.Errorf("the affinity of the agents is in the base, not in the overlay for EKS")
	}
	v.Affinity = c.value
	return set(trees[agent], part(".Values.agent.affinity"), pod("affinity")...)
}

// takeWorker makes a value of the priority of mount Jobs in the base.
func takeWorker(trees map[identity]any, v *values) error {
	const name = "--worker-priority-class="
	list, err := managerArgs(trees)
	if err != nil {
		return err
	}
	for i, item := range list {
		if text, ok := item.(string); ok && strings.HasPrefix(text, name) {
			v.WorkerPriority = strings.TrimPrefix(text, name)
			list[i] = flag(name, fmt.Sprintf(".Values.worker.priorityClassName | default %q", v.WorkerPriority))
			return nil
		}
	}
	return fmt.Errorf("the base does not give %s to the manager", name)
}

// parameterize replaces what the values have.
func (s Spec) parameterize(trees map[identity]any, runbooks string) error {
	for _, f := range fields() {
		if err := set(trees[f.object], verbatim("{{ toJson .Values."+f.value+" }}"), f.path...); err != nil {
			return fmt.Errorf("%s: %w", f.object, err)
		}
	}
	for _, step := range []func(map[identity]any) error{
		addPorts, addWorker,
		extendContainers, // after the flags: of two equal ones, a program uses the last
		extendPods, extendReadAhead, extendServer, s.addQuotasContainer, addAccounts, addMonitoring,
	} {
		if err := step(trees); err != nil {
			return err
		}
	}
	for id, tree := range trees {
		trees[id] = s.replace(tree, runbooks)
	}
	for _, step := range []func(map[identity]any) error{addLabels, addSwitches, repeatClass} {
		if err := step(trees); err != nil {
			return err
		}
	}
	return nil
}

// addPorts makes the manager, and the policies of the component admission, use one range of ports.
func addPorts(trees map[identity]any) error {
	const base, count = ".Values.ports.base", ".Values.ports.count"
	// Helm's numbers are of several types: int makes them comparable.
	err := addArgs(trees,
		conditional{fmt.Sprintf("ne (int %s) %d", base, defaultBasePort), verbatim(`--base-stunnel-port={{ include "efs-stunnel.checkPorts" $ }}{{ int ` + base + " }}")},
		conditional{fmt.Sprintf("ne (int %s) %d", count, defaultPortCount), verbatim(`--stunnel-port-count={{ include "efs-stunnel.checkPorts" $ }}{{ int ` + count + " }}")})
	if err != nil {
		return err
	}
	for _, policy := range []identity{"ValidatingAdmissionPolicy/efs-stunnel-host-ports", "ValidatingAdmissionPolicy/efs-stunnel-node-ports"} {
		tree, err := ofComponent(trees, policy)
		if err != nil {
			return err
		}
		for i, bound := range []string{"int " + base, "add " + base + " " + count + " -1"} { // first and last
			if err := set(tree, verbatim("{{ "+bound+" | quote }}"), "spec", "variables", i, "expression"); err != nil {
				return fmt.Errorf("%s: %w", policy, err)
			}
		}
	}
	return nil
}

// addWorker adds the manager's flags for mount Jobs.
func addWorker(trees map[identity]any) error {
	return addArgs(trees,
		conditional{".Values.worker.nodeSelector", flag("--worker-node-selector=", `include "efs-stunnel.workerNodeSelector" $`)},
		conditional{".Values.worker.tolerations", flag("--worker-tolerations=", `include "efs-stunnel.workerTolerations" $`)},
		conditional{".Values.imagePullPolicy", flag("--worker-image-pull-policy=", ".Values.imagePullPolicy")})
}

// addArgs appends arguments to the manager's.
func addArgs(trees map[identity]any, items ...any) error {
	args, err := managerArgs(trees)
	if err != nil {
		return err
	}
	return set(trees[manager], append(args, items...), pod("containers", 0, "args")...)
}

// ofComponent returns an object that is there only with a component.
func ofComponent(trees map[identity]any, id identity) (map[string]any, error) {
	c, _ := trees[id].(conditional)
	object, ok := c.value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is not that of a component", id)
	}
	return object, nil
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

// addAccounts adds what registries and AWS need to the service accounts, and makes those with a role optional.
func addAccounts(trees map[identity]any) error {
	for account, value := range map[identity]string{
		"ServiceAccount/efs-manager": "manager", "ServiceAccount/efs-stunnel": "agent", "ServiceAccount/efs-worker": "",
	} {
		if err := set(trees[account], part(".Values.imagePullSecrets"), "imagePullSecrets"); err != nil {
			return fmt.Errorf("%s: %w", account, err)
		}
		if value == "" {
			continue
		}
		settings := ".Values." + value + ".serviceAccount"
		if err := set(trees[account], part(settings+".annotations"), "metadata", "annotations"); err != nil {
			return fmt.Errorf("%s: %w", account, err)
		}
		trees[account] = conditional{settings + ".create", trees[account]}
	}
	return nil
}

// addMonitoring makes the interval a value. The labels are those of addLabels.
func addMonitoring(trees map[identity]any) error {
	for id, endpoints := range map[identity]string{
		"ServiceMonitor/efs-manager": "endpoints", "ServiceMonitor/efs-stunnel": "endpoints", "PodMonitor/efs-nfs-server": "podMetricsEndpoints",
	} {
		tree, err := ofComponent(trees, id)
		if err != nil {
			return err
		}
		if err := set(tree, part(".Values.monitoring.interval"), "spec", endpoints, 0, "interval"); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// runbooks returns the page of the rules.
func runbooks(trees map[identity]any) (string, error) {
	const rules = identity("PrometheusRule/efs-stunnel")
	tree, err := ofComponent(trees, rules)
	if err != nil {
		return "", err
	}
	page, err := get(tree, "metadata", "annotations", "efs-stunnel.gnuthought.com/runbooks")
	if err != nil {
		return "", fmt.Errorf("%s: %w", rules, err)
	}
	return fmt.Sprint(page), nil
}

// addLabels adds the labels of values and of the chart to each object.
func addLabels(trees map[identity]any) error {
	for id, tree := range trees {
		object, _ := tree.(map[string]any)
		if c, ok := tree.(conditional); ok {
			object, _ = c.value.(map[string]any)
		}
		metadata, ok := object["metadata"].(map[string]any)
		if !ok {
			return fmt.Errorf("%s: there is no metadata", id)
		}
		own, err := texts(metadata["labels"])
		if err != nil {
			return fmt.Errorf("%s: labels: %w", id, err)
		}
		more := ""
		if kind := fmt.Sprint(object["kind"]); slices.Contains([]string{"ServiceMonitor", "PodMonitor", "PrometheusRule"}, kind) {
			more = " $.Values.monitoring.labels"
		}
		if id == class {
			more = " .labels"
		}
		metadata["labels"] = verbatim(fmt.Sprintf(`{{ include "efs-stunnel.labels" (list $ %s%s) }}`, own, more))
	}
	return nil
}

// texts returns an object whose values are texts as JSON, in quotes of templates.
func texts(object any) (string, error) {
	fields, _ := object.(map[string]any)
	for key, value := range fields {
		if _, ok := value.(string); !ok {
			return "", fmt.Errorf("%s is %v, want a text", key, value)
		}
	}
	if fields == nil {
		return "`{}`", nil
	}
	text, err := json.Marshal(fields)
	return "`" + string(text) + "`", err
}

// addSwitches makes the namespace optional.
func addSwitches(trees map[identity]any) error {
	const namespace = identity("Namespace/efs-stunnel")
	if _, ok := trees[namespace]; !ok {
		return fmt.Errorf("the base has no %s", namespace)
	}
	trees[namespace] = conditional{".Values.createNamespace", trees[namespace]}
	return nil
}
