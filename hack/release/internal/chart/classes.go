package chart

import (
	"encoding/json"
	"fmt"
)

// classFields returns the keys of a StorageClass that are keys of an item of storageClasses.
func classFields() []string {
	return []string{"allowVolumeExpansion", "reclaimPolicy", "volumeBindingMode"}
}

// classes returns the default of storageClasses, which is the class of the base.
func classes(pristine any) ([]any, error) {
	item := map[string]any{"default": false}
	for key, path := range map[string][]any{"name": {"metadata", "name"}, "parameters": {"parameters"}} {
		value, err := get(pristine, path...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", class, err)
		}
		item[key] = value
	}
	for _, key := range classFields() {
		value, err := get(pristine, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", class, err)
		}
		item[key] = value
	}
	return []any{item}, nil
}

// repeatClass makes a class of each item of storageClasses, with the base's where an item says nothing.
func repeatClass(trees map[identity]any) error {
	object, ok := trees[class].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: %T is no object", class, trees[class])
	}
	for _, key := range classFields() {
		own, err := json.Marshal(object[key])
		if err != nil {
			return fmt.Errorf("%s: %w", class, err)
		}
		// Not default, for which false is nothing.
		object[key] = verbatim(fmt.Sprintf(`{{ ternary %s .%s (kindIs "invalid" .%[2]s) | toJson }}`, own, key))
	}
	object["parameters"], object["mountOptions"] = part(".parameters"), part(".mountOptions")
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: there is no metadata", class)
	}
	const isDefault = `(ternary (dict "storageclass.kubernetes.io/is-default-class" "true") (dict) (default false .default))`
	metadata["annotations"] = conditional{
		"or .annotations .default",
		verbatim("{{ mergeOverwrite (dict) (.annotations | default dict) " + isDefault + " | toJson }}"),
	}
	metadata["name"] = verbatim(`{{ required "a class of storageClasses has no name" .name | quote }}`)
	trees[class] = repeated{".Values.storageClasses", object}
	return nil
}
