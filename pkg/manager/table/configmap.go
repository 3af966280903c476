package table

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// document is one of the two ConfigMaps with a table, read.
type document struct {
	object *corev1.ConfigMap // nil when there is none
	table  *ports.Table      // nil when the ConfigMap has none, and after an error
	err    error
}

// lost says that the table is missing: only volumes have its ports.
func (d document) lost() bool { return d.table == nil && d.err == nil }

// content is the text of the table.
func (d document) content() string {
	if d.object == nil {
		return ""
	}
	return d.object.Data[wellknown.TargetsKey]
}

// readTable reads the ConfigMap that the manager writes.
func readTable(object *corev1.ConfigMap) document {
	return read(object, nil, ports.Decode)
}

// readPinned reads the administrator's ConfigMap; a missing one is empty. While it cannot be read,
// the table before stays in force: a port that it reserves must not go to another file system.
func readPinned(object *corev1.ConfigMap, before *ports.Table) document {
	d := read(object, &ports.Table{}, ports.DecodePinned)
	if d.err != nil {
		d.table = before
	}
	return d
}

// read takes an empty ConfigMap for a missing one. In one that has only other keys, the key is more
// likely misspelled.
func read(object *corev1.ConfigMap, missing *ports.Table, decode func([]byte) (ports.Table, error)) document {
	if object == nil || len(object.Data)+len(object.BinaryData) == 0 {
		return document{object: object, table: missing}
	}
	text, ok := object.Data[wellknown.TargetsKey]
	if !ok {
		return document{object: object, err: errors.New("it has other keys, but not " + wellknown.TargetsKey)}
	}
	table, err := decode([]byte(text))
	if err != nil {
		return document{object: object, err: fmt.Errorf("%s: %w", wellknown.TargetsKey, err)}
	}
	return document{object: object, table: &table}
}

// withTable is the ConfigMap with a table. What others have added stays.
func withTable(object *corev1.ConfigMap, namespace string, table ports.Table) *corev1.ConfigMap {
	next := object.DeepCopy()
	if next == nil {
		next = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: wellknown.TargetsConfigMap,
			Labels: map[string]string{
				"app.kubernetes.io/name":       "efs-stunnel",
				"app.kubernetes.io/managed-by": wellknown.ManagerDeployment,
			},
		}}
	}
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	next.Data[wellknown.TargetsKey] = string(ports.Encode(table))
	return next
}
