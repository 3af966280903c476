package chart

import (
	"errors"
	"fmt"
	"slices"
)

// extendContainers appends users' arguments, variables and mounts to those of the containers.
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
		container, err := containerOf(trees[c.object], pod("containers", c.index))
		if err != nil {
			return fmt.Errorf("%s: %w", c.object, err)
		}
		for key, value := range map[string]string{"args": "args", "env": "env", "volumeMounts": "extraVolumeMounts"} {
			container[key] = extend(container[key], c.values+"."+value)
		}
		setPullPolicy(container)
	}
	return nil
}

// setPullPolicy makes the pull policy of a container a value.
func setPullPolicy(container map[string]any) {
	const value = ".Values.imagePullPolicy"
	if own, ok := container["imagePullPolicy"].(string); ok {
		container["imagePullPolicy"] = verbatim(fmt.Sprintf("{{ %s | default %q }}", value, own))
		return
	}
	container["imagePullPolicy"] = part(value)
}

// extendPods adds labels, annotations and volumes of values to the pods.
func extendPods(trees map[identity]any) error {
	for id, values := range map[identity]string{manager: ".Values.manager", agent: ".Values.agent"} {
		template, err := get(trees[id], "spec", "template")
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		metadata, err := get(template, "metadata")
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		object, ok := metadata.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %T is no metadata", id, metadata)
		}
		for key, value := range map[string]string{"labels": ".podLabels", "annotations": ".podAnnotations"} {
			if object[key], err = add(object[key], values+value); err != nil {
				return fmt.Errorf("%s: %s: %w", id, key, err)
			}
		}
		volumes, _ := get(template, "spec", "volumes") // the manager has none
		if err := set(template, extend(volumes, values+".extraVolumes"), "spec", "volumes"); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return set(trees[manager], part(".Values.manager.topologySpreadConstraints"), pod("topologySpreadConstraints")...)
}

// add adds a value's texts to those of an object, which win, or makes the object of them alone.
func add(object any, value string) (any, error) {
	if object == nil {
		return part(value), nil
	}
	own, err := texts(object)
	return verbatim(fmt.Sprintf("{{ mergeOverwrite (dict) (%s | default dict) (fromJson %s) | toJson }}", value, own)), err
}

// extendReadAhead makes the DaemonSet of the component run where the agents do.
func extendReadAhead(trees map[identity]any) error {
	const readAhead = identity("DaemonSet/efs-read-ahead")
	if _, err := extendPod(trees, readAhead, ".Values.agent."); err != nil {
		return fmt.Errorf("%s: %w", readAhead, err)
	}
	tree, err := ofComponent(trees, readAhead)
	return errors.Join(err, set(tree, part(".Values.agent.affinity"), pod("affinity")...))
}

const server = identity("StatefulSet/efs-nfs-server")

// extendServer makes values of what users set of the component's server. Its Jobs run the manager's program, where the
// manager may run.
func extendServer(trees map[identity]any) error {
	for _, job := range []struct {
		id   identity
		path []any
	}{{"Job/efs-nfs-certificates", nil}, {"CronJob/efs-nfs-certificates", []any{"spec", "jobTemplate"}}} {
		if _, err := extendPod(trees, job.id, ".Values.manager.", job.path...); err != nil {
			return fmt.Errorf("%s: %w", job.id, err)
		}
	}
	container, err := extendPod(trees, server, ".Values.nfsServer.")
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	container["args"] = extend(addQuotas(container["args"], "--quotas"), ".Values.nfsServer.args")
	container["resources"] = verbatim("{{ toJson .Values.nfsServer.resources }}")
	tree, err := ofComponent(trees, server)
	if err != nil {
		return err
	}
	claim := []any{"spec", "volumeClaimTemplates", 0, "spec"}
	capabilities := pod("containers", 0, "securityContext", "capabilities", "add")
	granted, err := get(tree, capabilities...)
	return errors.Join(err,
		set(tree, addQuotas(granted, "SYS_ADMIN"), capabilities...),
		set(tree, part(".Values.nfsServer.affinity"), pod("affinity")...),
		set(tree, verbatim("{{ .Values.nfsServer.size | quote }}"), append(claim, "resources", "requests", "storage")...),
		set(tree, part(".Values.nfsServer.storageClassName"), append(claim, "storageClassName")...))
}

// extendPod makes values of where a component's pod runs and of how its image is pulled, without a service account of
// its own, and returns its container. The template of the pod is below a path.
func extendPod(trees map[identity]any, id identity, values string, path ...any) (map[string]any, error) {
	tree, err := ofComponent(trees, id)
	if err != nil {
		return nil, err
	}
	parts := map[string]any{"imagePullSecrets": part(".Values.imagePullSecrets")}
	for _, key := range placement() {
		parts[key] = verbatim("{{ toJson " + values + key + " }}")
	}
	for key, value := range parts {
		if err := set(tree, value, slices.Concat(path, pod(key))...); err != nil {
			return nil, err
		}
	}
	container, err := containerOf(tree, slices.Concat(path, pod("containers", 0)))
	if err != nil {
		return nil, err
	}
	setPullPolicy(container)
	return container, nil
}

// containerOf returns the container at a path.
func containerOf(tree any, path []any) (map[string]any, error) {
	found, err := get(tree, path...)
	if err != nil {
		return nil, err
	}
	container, ok := found.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%T is no container", found)
	}
	return container, nil
}

// addQuotasContainer adds the init container of the component nfs-server-quotas.
func (s Spec) addQuotasContainer(trees map[identity]any) error {
	rendered, err := s.Source.Base(s.Images, "nfs-server", "nfs-server-quotas")
	if err != nil {
		return err
	}
	withQuotas, err := objects(rendered)
	if err != nil {
		return err
	}
	container, err := containerOf(withQuotas[server], pod("initContainers", 0))
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	setPullPolicy(container)
	tree, err := ofComponent(trees, server)
	return errors.Join(err, set(tree, conditional{".Values.nfsServer.quotas", []any{container}}, pod("initContainers")...))
}

// addQuotas adds to a list what the component nfs-server-quotas adds.
func addQuotas(list any, item string) any {
	items, _ := list.([]any)
	return append(items, conditional{".Values.nfsServer.quotas", item})
}
