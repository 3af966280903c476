package ports

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Keys of the format that errors name.
const (
	keyTargets = "efs_stunnel_targets"
	keyPort    = "stunnel_port"
)

// Limits of unknown keys in the table, so that it can always be written again.
const (
	maxDepth    = 32
	maxKeyBytes = 512
)

// Decode reads a table, written by us or by the original system. Whatever it cannot read is an
// error, never an empty table: that would give every file system a new port.
func Decode(text []byte) (Table, error) {
	table, _, err := decode(text, true)
	return table, err
}

// DecodePinned reads the administrator's table, in which a target need not have a port.
func DecodePinned(text []byte) (Table, error) {
	table, _, err := decode(text, false)
	return table, err
}

// DecodeLenient is Decode for a reader that has to continue with what can be read: with an error, it
// also returns the valid targets, and the error of each invalid one by its key in the text.
func DecodeLenient(text []byte) (table Table, invalid map[string]error, err error) {
	return decode(text, true)
}

// decode returns the first error.
func decode(text []byte, portsRequired bool) (t Table, invalid map[string]error, err error) {
	root, err := parse(text)
	targets := take(root, keyTargets)
	err = cmp.Or(err, read(root, "", 0, tableFields, &t))
	var wrong error
	t.Targets, invalid, wrong = readTargets(targets, targetFields(portsRequired))
	return t, invalid, cmp.Or(err, wrong, checkUniquePorts(t))
}

// parse reads one document, without its aliases and merges. A key that occurs twice is an error: one
// of two ports would be lost. With an error, the mapping may be empty.
func parse(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var content any
	err := decoder.Decode(&content)
	root := node(content)
	switch {
	case errors.Is(err, io.EOF), err == nil && content == nil:
		err = errors.New("the file is empty; want a mapping with " + keyTargets)
	case err != nil:
		err = fmt.Errorf("parsing YAML: %w", err)
	case root.Kind != yaml.MappingNode:
		err = fmt.Errorf("%s; want a mapping with %s", shown(root), keyTargets)
	case !errors.Is(decoder.Decode(new(any)), io.EOF):
		return root, errors.New("more than one YAML document; want one")
	default:
		return root, nil
	}
	return node(map[string]any{}), err
}

// read checks a mapping and decodes it.
func read(n *yaml.Node, path string, depth int, check check, into any) error {
	err := cmp.Or(checkShape(n, path, depth), check(path, n))
	return cmp.Or(err, n.Decode(into))
}

// readTargets returns the valid targets, why others are not, and the first of these errors.
func readTargets(n *yaml.Node, check check) (valid map[string]Target, invalid map[string]error, first error) {
	if n.Kind != yaml.MappingNode {
		return nil, nil, want(keyTargets, n, "a mapping of file system ids to targets, {} for none")
	}
	valid, invalid = map[string]Target{}, map[string]error{}
	for field := range slices.Chunk(n.Content, 2) {
		id := field[0].Value
		target, err := readTarget(id, field[1], check)
		if err != nil {
			invalid[id], first = err, cmp.Or(first, err)
			continue
		}
		valid[id] = target
	}
	return valid, invalid, first
}

func readTarget(id string, n *yaml.Node, check check) (t Target, err error) {
	if err := CheckTargetID(id); err != nil {
		return t, fmt.Errorf("%s: %w", keyTargets, err)
	}
	err = read(n, join(keyTargets, id), 2, check, &t)
	return t, cmp.Or(err, checkUniquePorts(Table{Targets: map[string]Target{id: t}}))
}

// take removes a key from a mapping and returns its value, null if there is none.
func take(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			value := n.Content[i+1]
			n.Content = append(n.Content[:i:i], n.Content[i+2:]...)
			return value
		}
	}
	return node(nil)
}

// checkUniquePorts refuses a table in which two tunnels would listen on one port: one of them
// would carry the other's volumes.
func checkUniquePorts(t Table) error {
	owners := map[int]Key{}
	for _, key := range t.Keys() {
		port, _ := t.Port(key)
		if owner, taken := owners[port]; taken && port != 0 {
			return fmt.Errorf("%s of %s: %d is also that of %s; want each port once", keyPort, key, port, owner)
		}
		owners[port] = key
	}
	return nil
}

// Encode writes a table. Equal tables give equal bytes.
func Encode(t Table) []byte {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	_ = encoder.Encode(node(t)) // cannot fail: the buffer takes everything
	return b.Bytes()
}

// node converts a value to YAML that depends on the value only.
func node(value any) *yaml.Node {
	var n yaml.Node
	_ = n.Encode(value) // cannot fail: tables and decoded YAML hold nothing that YAML lacks
	normalize(&n)
	return &n
}

// normalize sorts keys byte by byte, because the library sorts numbers inside ids by value, for
// which some ids have no order. It quotes what other readers, the original system's among them,
// take for something else: "=" and "<<", and times, which would come back from them in another form.
func normalize(n *yaml.Node) {
	for _, child := range n.Content {
		normalize(child)
	}
	n.Line, n.Column = 0, 0
	switch {
	case n.Kind == yaml.MappingNode:
		n.Style = 0
		sortKeys(n)
	case n.Kind == yaml.SequenceNode:
		n.Style = 0
	case n.ShortTag() == "!!timestamp":
		at, _ := time.Parse(time.RFC3339Nano, n.Value)
		setText(n, at.UTC().Format(time.RFC3339))
	case n.Value == "=" || n.Value == "<<":
		setText(n, n.Value)
	case n.Style != 0:
		n.Style = yaml.DoubleQuotedStyle
	}
}

// sortKeys also makes keys that are not strings into strings.
func sortKeys(n *yaml.Node) {
	fields := slices.Collect(slices.Chunk(n.Content, 2))
	for _, field := range fields {
		if key := field[0]; key.ShortTag() != "!!str" {
			setText(key, key.Value)
		}
	}
	slices.SortFunc(fields, func(a, b []*yaml.Node) int { return strings.Compare(a[0].Value, b[0].Value) })
	n.Content = slices.Concat(fields...)
}

func setText(n *yaml.Node, text string) {
	n.Tag, n.Value, n.Style = "!!str", text, yaml.DoubleQuotedStyle
}
