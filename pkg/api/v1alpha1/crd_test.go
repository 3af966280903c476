package v1alpha1_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

const crdFile = "../../../deploy/kustomize/components/shared-volumes/crd.yaml"

// schema is the part of a JSONSchemaProps that the tests look at.
type schema struct {
	Type       string
	Properties map[string]schema
	Items      *schema
	Required   []string
	Enum       []string
	Pattern    string
	MaxLength  int
}

// definition is a CustomResourceDefinition; its API package is not among our dependencies.
type definition struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Group, Scope string
		Names        struct {
			Kind, Plural, Singular, ListKind string
			ShortNames                       []string
		}
		Versions []struct {
			Name                     string
			Served, Storage          bool
			Subresources             map[string]any
			AdditionalPrinterColumns []struct{ Name, JSONPath string }
			Schema                   struct{ OpenAPIV3Schema schema }
		}
	}
}

func readDefinition(t *testing.T) definition {
	t.Helper()
	return readDefinitions(t, crdFile)[0]
}

func readDefinitions(t *testing.T, file string) (all []definition) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var crd definition
		if err := yaml.Unmarshal([]byte(document), &crd); err != nil {
			t.Fatal(err)
		}
		if len(crd.Spec.Versions) != 1 {
			t.Fatalf("%d versions", len(crd.Spec.Versions))
		}
		all = append(all, crd)
	}
	return all
}

func TestNamesAreThoseOfTheDefinition(t *testing.T) {
	crd := readDefinition(t)
	names, version := crd.Spec.Names, crd.Spec.Versions[0]
	got := []string{crd.Name, crd.Spec.Group, crd.Spec.Scope, names.Kind, names.ListKind, names.Plural, version.Name}
	want := []string{
		v1alpha1.SharedVolumeResource + "." + v1alpha1.GroupName, v1alpha1.GroupName, "Namespaced",
		v1alpha1.SharedVolumeKind, v1alpha1.SharedVolumeKind + "List", v1alpha1.SharedVolumeResource, v1alpha1.Version,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names mismatch (-types +definition):\n%s", diff)
	}
	if _, ok := version.Subresources["status"]; !ok || !version.Served || !version.Storage || !slices.Contains(names.ShortNames, "sv") {
		t.Errorf("got %+v, %+v", names, version)
	}
}

func TestSchemaIsThatOfTheTypes(t *testing.T) {
	got := readDefinition(t).Spec.Versions[0].Schema.OpenAPIV3Schema
	compare(t, "", reflect.TypeFor[v1alpha1.SharedVolume](), got)
	phases := []string{string(v1alpha1.Pending), string(v1alpha1.Ready), string(v1alpha1.Deleting), string(v1alpha1.Failed)}
	if diff := cmp.Diff(phases, got.Properties["status"].Properties["phase"].Enum); diff != "" {
		t.Errorf("phases mismatch (-types +schema):\n%s", diff)
	}
}

// compare wants every field of the type in the schema, with its kind, and nothing else there.
func compare(t *testing.T, path string, typed reflect.Type, s schema) {
	t.Helper()
	if typed.Kind() == reflect.Pointer {
		typed = typed.Elem()
	}
	switch {
	case typed == reflect.TypeFor[metav1.ObjectMeta](), typed == reflect.TypeFor[metav1.Time]():
		return // the apiserver knows them
	case typed.Kind() == reflect.Slice:
		if s.Type != "array" || s.Items == nil {
			t.Errorf("%s is %q in the schema", path, s.Type)
			return
		}
		compare(t, path+"[]", typed.Elem(), *s.Items)
		return
	case typed.Kind() != reflect.Struct:
		if want := jsonType(typed.Kind()); s.Type != want {
			t.Errorf("%s is %q in the schema, want %q", path, s.Type, want)
		}
		return
	}
	fields := fieldsOf(typed)
	for name, field := range fields {
		property, ok := s.Properties[name]
		if !ok {
			t.Errorf("%s.%s is not in the schema", path, name)
			continue
		}
		compare(t, path+"."+name, field.Type, property)
		optional := strings.Contains(field.Tag.Get("json"), ",omit")
		known := slices.Contains([]string{"apiVersion", "kind", "metadata"}, name)
		if !known && optional == slices.Contains(s.Required, name) {
			t.Errorf("%s.%s: optional is %v in the type, and not so in the schema", path, name, optional)
		}
	}
	for name := range s.Properties {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s.%s is in the schema only", path, name)
		}
	}
}

// fieldsOf are those that JSON has, also of embedded structs.
func fieldsOf(typed reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for _, field := range reflect.VisibleFields(typed) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inlined := field.Anonymous && name == ""
		within := len(field.Index) > 1 && typed.Field(field.Index[0]).Tag.Get("json") != ",inline"
		if !inlined && !within {
			fields[name] = field
		}
	}
	return fields
}

func jsonType(kind reflect.Kind) string {
	switch kind {
	case reflect.Bool:
		return "boolean"
	case reflect.Int64, reflect.Int:
		return "integer"
	default:
		return kind.String()
	}
}

// TestPatternsAreThoseOfTheChecks: what one of the two refuses and the other does not would be
// refused too late, or never.
func TestPatternsAreThoseOfTheChecks(t *testing.T) {
	spec := readDefinition(t).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	for name, check := range map[string]func(string) error{
		"fileSystemID":  ports.CheckTargetID,
		"accessPointID": efs.CheckAccessPointID,
	} {
		for _, id := range []string{
			"", "fs-1", "fs-0123456789abcdef0", "nas", "a-", "-a", "A", "a b", "a/b", "..", "fs-1\n", "fsap-1", "fsap-", "fsap-A",
			"fsap-0123456789abcdef0", "fs-" + strings.Repeat("0", 40), "fs-" + strings.Repeat("0", 41),
			"fsap-" + strings.Repeat("0", 40), "fsap-" + strings.Repeat("0", 41),
		} {
			if got, want := matches(t, spec[name], id), check(id) == nil; got != want {
				t.Errorf("%s %q: the schema says %v, the check %v", name, id, got, want)
			}
		}
	}
}

func TestColumnsAreThoseOfTheOriginal(t *testing.T) {
	var columns []string
	for _, c := range readDefinition(t).Spec.Versions[0].AdditionalPrinterColumns {
		columns = append(columns, strings.ToUpper(c.Name))
	}
	want := []string{"FILE SYSTEM", "ACCESS POINT", "PHASE", "CLAIM", "MESSAGE", "AGE"}
	if diff := cmp.Diff(want, columns); diff != "" {
		t.Errorf("columns mismatch (-want +got):\n%s", diff)
	}
}
