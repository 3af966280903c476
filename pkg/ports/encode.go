package ports

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

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
