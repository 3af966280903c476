package routing

import (
	"maps"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Rejected is a target of the table that cannot be decoded.
type Rejected struct {
	FileSystem string // the key as written, which may be no valid ID
	Err        error
}

// ReadTable decodes a table. A target that cannot be decoded is returned as rejected, and the table has it
// as in the last one, if at all. With an error, which is about the whole table, it returns the last table.
func ReadTable(text []byte, last ports.Table) (ports.Table, []Rejected, error) {
	table, invalid, err := ports.DecodeLenient(text)
	if err == nil {
		return table, nil, nil
	}
	var rejected []Rejected
	for _, id := range slices.Sorted(maps.Keys(invalid)) {
		rejected = append(rejected, Rejected{id, invalid[id]})
	}
	if len(table.Targets) == 0 {
		return last, rejected, err
	}
	for _, r := range rejected {
		if target, ok := last.Targets[r.FileSystem]; ok {
			table.Targets[r.FileSystem] = target
		}
	}
	return ports.Table{Targets: table.Targets}, rejected, nil
}
