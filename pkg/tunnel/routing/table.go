package routing

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// keyTargets is the table's one key that cannot be missing.
const keyTargets = "efs_stunnel_targets"

// Rejected is a target that the table has wrong.
type Rejected struct {
	FileSystem string // any text
	Err        error
}

// ReadTable reads a table. Where that fails because of some targets, the others are as they
// should be, and each bad one is as it was last. An error is about all of the table, of which
// the last one then remains.
func ReadTable(text []byte, last ports.Table) (ports.Table, []Rejected, error) {
	table, whole := ports.Decode(text)
	if whole == nil {
		return table, nil, nil
	}
	targets, ok := targetsOf(text)
	if !ok {
		return last, nil, whole
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
		return last, rejected, whole // nothing of it is any good
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

// readTarget has the table's own rules decide about one target.
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
		return ports.Target{}, errLost
	}
	return target, nil
}

var errLost = errors.New("the target's id does not survive being written")
