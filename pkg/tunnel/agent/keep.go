package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// notes are what the agent keeps on disk, besides the table.
type notes struct {
	Place   routing.Place             `json:"place"`
	Unknown []string                  `json:"unknown,omitempty"`
	Tunnels map[string]routing.Memory `json:"tunnels"`
}

// load takes up what an earlier life kept. Whatever cannot be read is as if it had not been
// there: the files of the tunnels say the rest, and nothing of them is lost.
func (a *Agent) load() {
	if err := a.loadNotes(); err != nil {
		a.options.Log.Warn("notes of an earlier run are of no use", "err", err)
	}
	if err := a.loadFiles(); err != nil {
		a.options.Log.Warn("tunnels' files of an earlier run are of no use", "err", err)
	}
	if err := a.loadTable(); err != nil {
		a.options.Log.Warn("table of an earlier run is of no use", "err", err)
	}
}

func (a *Agent) loadNotes() error {
	text, err := a.options.Dir.Memory()
	if err != nil || text == nil {
		return err
	}
	var n notes
	if err := json.Unmarshal(text, &n); err != nil {
		return fmt.Errorf("reading notes: %w", err)
	}
	a.place, a.unknown, a.kept = n.Place, n.Unknown, text
	maps.Copy(a.memories, n.Tunnels)
	return nil
}

// loadFiles believes a file more than the notes, which are written before it.
func (a *Agent) loadFiles() error {
	names, err := a.options.Dir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := a.options.Dir.Read(name)
		if err != nil {
			return err
		}
		tunnel, err := spec.Decode(text)
		if err != nil {
			a.logOf(name).Warn("specification of an earlier run is of no use", "err", err)
			continue
		}
		memory, known := a.memories[name]
		memory.Serial = max(memory.Serial, tunnel.Restart)
		if !known {
			memory.Port = int(tunnel.Accept.Port())
			memory.Standby = tunnel.Accept.Addr().String() == wellknown.StandbyAddress
		}
		a.memories[name], a.written[name] = memory, text
	}
	return nil
}

func (a *Agent) loadTable() error {
	text, err := a.options.Dir.Table()
	if err != nil || text == nil {
		return err
	}
	table, _, err := routing.ReadTable(text, ports.Table{})
	if err != nil {
		return fmt.Errorf("reading the kept table: %w", err)
	}
	a.table, a.hasTable = table, true
	a.options.Log.Info("table of an earlier run is used until the apiserver has one")
	return nil
}

// save writes the notes if they are news.
func (a *Agent) save() error {
	text, err := json.Marshal(notes{a.place, a.unknown, a.memories})
	if err != nil {
		return fmt.Errorf("keeping notes: %w", err)
	}
	if bytes.Equal(text, a.kept) {
		return nil
	}
	if err := a.options.Dir.WriteMemory(text); err != nil {
		return err
	}
	a.kept = text
	return nil
}
