package collect

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// object returns an API object as YAML, without credentials and without what no issue needs.
func (r redactor) object(object runtime.Object) (string, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return "", err
	}
	if kinds, _, err := scheme.Scheme.ObjectKinds(object); err == nil && len(kinds) > 0 { // typed clients leave it out
		fields["apiVersion"], fields["kind"] = kinds[0].GroupVersion().String(), kinds[0].Kind
	}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		clearMeta(meta)
	}
	text, err := yaml.Marshal(r.value("", fields))
	if err != nil {
		return "", fmt.Errorf("writing an object: %w", err)
	}
	return string(text), nil
}

// objects returns objects as YAML documents.
func objects[T runtime.Object](r redactor, all []T) (string, error) {
	var out strings.Builder
	for _, object := range all {
		text, err := r.object(object)
		if err != nil {
			return "", err
		}
		out.WriteString("---\n" + text)
	}
	return out.String(), nil
}

// value redacts everything below a field.
func (r redactor) value(field string, value any) any {
	switch value := value.(type) {
	case string:
		return r.text(value)
	case []any:
		return r.list(field, value)
	case map[string]any:
		return r.fields(field, value)
	}
	return value
}

// namedFields are maps whose keys are chosen by users, as the names of variables are.
var namedFields = []string{"annotations", "labels", "matchLabels", "data", "parameters"}

func (r redactor) fields(field string, fields map[string]any) map[string]any {
	if field == "template" { // of pods, with annotations of their own
		if meta, ok := fields["metadata"].(map[string]any); ok {
			clearMeta(meta)
		}
	}
	for key, value := range fields {
		if text, ok := value.(string); ok && slices.Contains(namedFields, field) {
			fields[key] = r.variable(key, text)
			continue
		}
		fields[key] = r.value(key, value)
	}
	return fields
}

// list redacts variables and arguments by their names, too.
func (r redactor) list(field string, list []any) []any {
	for i, item := range list {
		variable, isMap := item.(map[string]any)
		name, _ := variable["name"].(string)
		value, hasValue := variable["value"].(string)
		if isMap && hasValue {
			variable["value"] = r.variable(name, value)
		}
		list[i] = r.value(field, item)
	}
	if field == "args" || field == "command" {
		r.arguments(list)
	}
	return list
}

// arguments redacts the value of a flag that is an argument of its own.
func (r redactor) arguments(list []any) {
	for i := 1; i < len(list); i++ {
		flag, _ := list[i-1].(string)
		value, _ := list[i].(string)
		if strings.HasPrefix(flag, "-") && !strings.Contains(flag, "=") && !strings.HasPrefix(value, "-") {
			list[i] = r.variable(flag, value)
		}
	}
}

// clearMeta keeps the annotations of this project and of Kubernetes. Other programs store anything in
// theirs, and kubectl a copy of the whole object.
func clearMeta(meta map[string]any) {
	delete(meta, "managedFields")
	all, ok := meta["annotations"].(map[string]any)
	if !ok {
		return
	}
	for key := range all {
		domain, _, _ := strings.Cut(key, "/")
		ours := isBelow(domain, wellknown.Domain) || isBelow(domain, wellknown.KubernetesDomain) || isBelow(domain, wellknown.KubernetesShortDomain)
		if key == corev1.LastAppliedConfigAnnotation || !ours {
			all[key] = removed
		}
	}
}

func isBelow(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// node returns the fields of a node that show its zone and whether it can mount.
func node(from *corev1.Node) *corev1.Node {
	to := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: from.Name, CreationTimestamp: from.CreationTimestamp, Labels: map[string]string{}}}
	for _, key := range []string{
		corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelInstanceTypeStable, "eks.amazonaws.com/compute-type",
	} {
		if value, ok := from.Labels[key]; ok {
			to.Labels[key] = value
		}
	}
	to.Spec = corev1.NodeSpec{Taints: from.Spec.Taints, Unschedulable: from.Spec.Unschedulable}
	to.Status = corev1.NodeStatus{Conditions: from.Status.Conditions, NodeInfo: from.Status.NodeInfo, Allocatable: from.Status.Allocatable}
	to.Status.NodeInfo.MachineID, to.Status.NodeInfo.SystemUUID, to.Status.NodeInfo.BootID = "", "", ""
	return to
}
