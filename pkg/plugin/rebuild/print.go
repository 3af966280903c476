package rebuild

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// PrintObjects prints the objects that items would create, as kubectl apply reads them: volumes first. The
// format is json, or YAML for any other. What paths contain cannot harm a terminal.
func PrintObjects(out io.Writer, format string, items []Item) error {
	objects := objectsOf(items)
	if format == "json" {
		list := corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
		for _, object := range objects {
			list.Items = append(list.Items, runtime.RawExtension{Object: object})
		}
		data, err := json.MarshalIndent(list, "", "  ")
		if err == nil {
			_, err = out.Write(append(escaped(data, jsonEscape), '\n'))
		}
		return err
	}
	for _, object := range objects {
		text, err := document(object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

func objectsOf(items []Item) []runtime.Object {
	var volumes, claims []runtime.Object
	for _, item := range items {
		if item.NewVolume != nil {
			volume := item.NewVolume.DeepCopy()
			volume.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
			volumes = append(volumes, volume)
		}
		if item.NewClaim != nil {
			claim := item.NewClaim.DeepCopy()
			claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
			claims = append(claims, claim)
		}
	}
	return append(volumes, claims...)
}

// document returns an object as YAML. An object with characters that are not printed is in the form of JSON, in
// which each of them is inside a string, and so can be an escape.
func document(object runtime.Object) ([]byte, error) {
	text, err := yaml.Marshal(object)
	if err != nil || bytes.Equal(text, escaped(text, yamlEscape)) {
		return text, err
	}
	text, err = json.Marshal(object)
	return append(escaped(text, yamlEscape), '\n'), err
}

// escaped writes what is not printed, except line ends, as escapes.
func escaped(text []byte, escape func(rune) string) []byte {
	var out bytes.Buffer
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if text = text[size:]; unicode.IsPrint(r) || r == '\n' {
			out.WriteRune(r)
		} else {
			out.WriteString(escape(r))
		}
	}
	return out.Bytes()
}

func jsonEscape(r rune) (text string) {
	for _, unit := range utf16.Encode([]rune{r}) {
		text += fmt.Sprintf(`\u%04x`, unit)
	}
	return text
}

// yamlEscape knows no surrogates.
func yamlEscape(r rune) string { return fmt.Sprintf(`\U%08x`, r) }
