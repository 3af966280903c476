package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// schema is a JSON schema of draft 7, which all versions of Helm 3 and 4 can read.
type schema struct {
	Draft      string             `json:"$schema,omitempty"`
	Type       []string           `json:"type,omitempty"` // any type, if empty
	Properties map[string]*schema `json:"properties,omitempty"`
	Additional any                `json:"additionalProperties,omitempty"` // false, or the schema of keys that users choose
	Required   []string           `json:"required,omitempty"`
	Items      *schema            `json:"items,omitempty"`
	Minimum    int                `json:"minimum,omitempty"`
	Maximum    int                `json:"maximum,omitempty"`
}

// schema describes the values by their defaults. Helm refuses a value that is not in it; without a schema,
// a misspelled one would silently change nothing.
func (v values) schema() ([]byte, error) {
	defaults, err := v.defaults()
	if err != nil {
		return nil, err
	}
	root, err := section("", defaults)
	if err != nil {
		return nil, err
	}
	root.Draft = "http://json-schema.org/draft-07/schema#"
	// A chart of which this one is a part: Helm adds global, and conditions of dependencies are called enabled.
	root.Properties["global"], root.Properties["enabled"] = &schema{}, &schema{Type: []string{"boolean"}}
	// With first port 0, the policies would refuse every pod that has a port.
	ports := root.Properties["ports"].Properties
	ports["base"].Minimum, ports["base"].Maximum = 1024, 65535
	ports["count"].Minimum, ports["count"].Maximum = 1, 65535
	root.Properties["storageClasses"].Items = describeClass()
	return json.MarshalIndent(root, "", "  ")
}

// section returns an object of which the chart knows all keys. What a template cannot do without is required.
func section(path string, defaults map[string]any) (*schema, error) {
	s := &schema{Type: []string{"object"}, Properties: map[string]*schema{}, Additional: false}
	for _, key := range slices.Sorted(maps.Keys(defaults)) {
		property, err := describe(path+key, defaults[key])
		if err != nil {
			return nil, err
		}
		s.Properties[key] = property
		if !slices.Contains(property.Type, "null") {
			s.Required = append(s.Required, key)
		}
	}
	return s, nil
}

// describe describes a value by its default. Users remove a default by null.
func describe(path string, value any) (*schema, error) {
	switch v := value.(type) {
	case map[string]any:
		if !free(path, v) {
			return section(path+".", v)
		}
		return object(path), nil
	case []any:
		return &schema{Type: []string{"array", "null"}}, nil
	case string:
		return &schema{Type: []string{"string", "null"}}, nil
	case bool:
		return &schema{Type: []string{"boolean", "null"}}, nil
	case float64:
		return &schema{Type: []string{"integer"}}, nil
	}
	return nil, fmt.Errorf("the default of %s, %v, does not say of which type the value is", path, value)
}

// object describes an object whose keys users choose. Of texts, a number or a switch without quotes is refused here:
// the apiserver would refuse it in the middle of an installation.
func object(path string) *schema {
	s := &schema{Type: []string{"object", "null"}}
	name := strings.ToLower(path[strings.LastIndex(path, ".")+1:])
	for _, texts := range []string{"labels", "annotations", "nodeselector", "parameters"} {
		if strings.HasSuffix(name, texts) {
			s.Additional = &schema{Type: []string{"string", "null"}}
		}
	}
	return s
}

// describeClass describes an item of storageClasses.
func describeClass() *schema {
	item := &schema{Type: []string{"object"}, Additional: false, Required: []string{"name"}, Properties: map[string]*schema{}}
	for name, kind := range map[string]string{
		"name": "string", "default": "boolean", "reclaimPolicy": "string", "volumeBindingMode": "string",
		"allowVolumeExpansion": "boolean", "mountOptions": "array",
	} {
		item.Properties[name] = &schema{Type: []string{kind, "null"}}
	}
	for _, name := range []string{"labels", "annotations", "parameters"} {
		item.Properties[name] = object(name)
	}
	item.Properties["name"].Type = []string{"string"}
	return item
}

// free reports whether users choose the keys of an object: keys that Kubernetes defines are not repeated here.
func free(path string, defaults map[string]any) bool {
	return len(defaults) == 0 || slices.Contains([]string{"agent.affinity", "nfsServer.resources", "nfsServer.nodeSelector"}, path) ||
		slices.ContainsFunc(fields(), func(f field) bool { return f.value == path })
}
