package routing

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// keyTargets is the only required key of the table.
const keyTargets = "efs_stunnel_targets"

// Rejected is a target of the table that cannot be decoded.
type Rejected struct {
	FileSystem string // the key as written, which may be no valid ID
	Err        error
}

// ReadTable decodes a table. A target that cannot be decoded is returned as rejected, and the table
// has it as in the last one, if at all. With an error, which is about the whole table, it returns the
// last table.
func ReadTable(text []byte, last ports.Table) (ports.Table, []Rejected, error) {
	table, tableErr := ports.Decode(text)
	if tableErr == nil {
		return table, nil, nil
	}
	targets, ok := targetsOf(text)
	if !ok {
		return last, nil, tableErr
	}
	table = ports.Table{Targets: map[string]ports.Target{}}
	var rejected []Rejected
	for _, id := range slices.Sorted(maps.Keys(targets)) {
		target, err := readTarget(id, targets[id])
		if err != nil {
			rejected = append(rejected, Rejected{id, err})
			target, ok = last.Targets[id]
		}
		if err == nil || ok {
			table.Targets[id] = target
		}
	}
	if len(rejected) == len(targets) {
		return last, rejected, tableErr
	}
	return table, rejected, nil
}

func targetsOf(text []byte) (map[string]any, bool) {
	var document map[string]any
	if err := yaml.UnmarshalStrict(text, &document); err != nil {
		return nil, false
	}
	targets, ok := document[keyTargets].(map[string]any)
	return targets, ok
}

// readTarget decodes one target by the rules of the table.
func readTarget(id string, content any) (ports.Target, error) {
	text, err := yaml.Marshal(map[string]any{keyTargets: map[string]any{id: content}})
	if err != nil {
		return ports.Target{}, fmt.Errorf("reading target %q: %w", id, err)
	}
	table, err := ports.Decode(text)
	if err != nil {
		return ports.Target{}, err
	}
	target, ok := table.Targets[id]
	if !ok {
		return ports.Target{}, errChangedID
	}
	return target, nil
}

var errChangedID = errors.New("the target's ID changes when it is encoded")
