package discovery

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// document is one of the two ConfigMaps with a table, read.
type document struct {
	object *corev1.ConfigMap // nil when there is none
	// table is nil when the ConfigMap has none: it is lost, or err says why it cannot be read.
	table *ports.Table
	err   error
}

// lost says that nobody can remember the table but the volumes.
func (d document) lost() bool { return d.table == nil && d.err == nil }

// content is what an unreadable document says, to tell one mistake from the next.
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

// readPinned reads the administrator's, of which a missing one is an empty one. While it cannot
// be read, the one before stays in force: a port that it reserves must not go to another.
func readPinned(object *corev1.ConfigMap, before *ports.Table) document {
	d := read(object, &ports.Table{}, ports.DecodePinned)
	if d.err != nil {
		d.table = before
	}
	return d
}

// read takes an empty ConfigMap for a missing one. One without the key that has others is more
// likely a slip of the pen.
func read(object *corev1.ConfigMap, missing *ports.Table, decode func([]byte) (ports.Table, error)) document {
	if object == nil || len(object.Data)+len(object.BinaryData) == 0 {
		return document{object: object, table: missing}
	}
	text, ok := object.Data[wellknown.TargetsKey]
	if !ok {
		return document{object: object, err: errNoKey}
	}
	table, err := decode([]byte(text))
	if err != nil {
		return document{object: object, err: fmt.Errorf("%s: %w", wellknown.TargetsKey, err)}
	}
	return document{object: object, table: &table}
}

var errNoKey = errors.New("it has other keys, but not " + wellknown.TargetsKey)

// withTable is the ConfigMap as it should be. Whatever others have put there stays.
func withTable(object *corev1.ConfigMap, namespace string, table ports.Table) *corev1.ConfigMap {
	next := object.DeepCopy()
	if next == nil {
		next = newConfigMap(namespace)
	}
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	next.Data[wellknown.TargetsKey] = string(ports.Encode(table))
	return next
}
