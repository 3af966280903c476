package translate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	documents "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// operatorGroup is the API group of the AWS EFS Operator's SharedVolumes.
const operatorGroup = "aws-efs.managed.openshift.io"

// object is a document, or an item of a document that is a List.
type object struct {
	metav1.TypeMeta `json:",inline"`

	Items []json.RawMessage `json:"items"`
	text  []byte            // as JSON
	place string            // in the file
}

// Translate returns the object to use in place of each one of the documents, with comments about what differs. An error
// names the document, and its item.
func Translate(text []byte, provisioner string) ([]byte, error) {
	objects, err := read(text)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, o := range objects {
		translated, err := o.translate(provisioner)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.place, err)
		}
		out = append(out, translated)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no StorageClass or SharedVolume: want what kubectl get storageclass NAME -o yaml prints")
	}
	return bytes.Join(out, []byte("---\n")), nil
}

// read returns the objects of all documents that have more than comments.
func read(text []byte) ([]object, error) {
	var all []object
	reader := documents.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		place := fmt.Sprintf("document %d", number)
		if err == nil {
			document, err = yaml.YAMLToJSON(document)
		}
		if err == nil && string(document) != "null" {
			all, err = appendObjects(all, document, place)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", place, err)
		}
	}
}

// appendObjects appends the items of a List, which kubectl makes of several objects, or else the document itself.
func appendObjects(all []object, document []byte, place string) ([]object, error) {
	o := object{text: document, place: place}
	if err := json.Unmarshal(document, &o); err != nil {
		return nil, err
	}
	if o.Kind != "List" {
		return append(all, o), nil
	}
	for i, text := range o.Items {
		item := object{text: text, place: fmt.Sprintf("%s, item %d", place, i+1)}
		if err := json.Unmarshal(text, &item); err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}

func (o object) translate(provisioner string) ([]byte, error) {
	class := storagev1.SchemeGroupVersion.WithKind("StorageClass")
	switch kind := o.GroupVersionKind(); {
	case kind == class:
		return translateClass(o.text, provisioner)
	case kind.Group == operatorGroup && kind.Kind == "SharedVolume":
		return translateSharedVolume(o.text)
	}
	return nil, fmt.Errorf("kind is %q of %q: want StorageClass of %q, SharedVolume of %q, or a List of them",
		o.Kind, o.APIVersion, class.GroupVersion(), operatorGroup+"/v1alpha1")
}
