package mountjobs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ParseTolerations reads a list of taints as kubectl taint writes them: key=value:effect, with commas between.
// Without a value every value is tolerated, and without an effect every effect.
func ParseTolerations(list string) ([]corev1.Toleration, error) {
	var all []corev1.Toleration
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		toleration, err := parseToleration(item)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", item, err)
		}
		all = append(all, toleration)
	}
	return all, nil
}

func parseToleration(item string) (corev1.Toleration, error) {
	taint, effect, hasEffect := strings.Cut(item, ":")
	key, value, hasValue := strings.Cut(taint, "=")
	toleration := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Value: value, Effect: corev1.TaintEffect(effect)}
	if hasValue {
		toleration.Operator = corev1.TolerationOpEqual
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if hasEffect && !slices.Contains(effects, toleration.Effect) {
		return toleration, fmt.Errorf("want an effect of %q, or none for all", effects)
	}
	if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
		return toleration, errors.New("want a taint such as dedicated=storage:NoSchedule")
	}
	return toleration, nil
}

// FormatTolerations is the inverse of ParseTolerations.
func FormatTolerations(all []corev1.Toleration) string {
	var items []string
	for _, t := range all {
		item := t.Key
		if t.Operator == corev1.TolerationOpEqual {
			item += "=" + t.Value
		}
		if t.Effect != "" {
			item += ":" + string(t.Effect)
		}
		items = append(items, item)
	}
	return strings.Join(items, ",")
}

// ParseNodeSelector reads key=value,…: labels that a node must have.
func ParseNodeSelector(list string) (map[string]string, error) {
	selector, err := labels.ConvertSelectorToLabelsMap(list)
	if err != nil || len(metav1validation.ValidateLabels(selector, nil)) > 0 {
		return nil, errors.New("want labels such as pool=storage, with commas between")
	}
	if len(selector) == 0 {
		return nil, nil //nolint:nilnil // no selector is a result
	}
	return selector, nil
}

// FormatNodeSelector is the inverse of ParseNodeSelector.
func FormatNodeSelector(selector map[string]string) string { return labels.Set(selector).String() }
