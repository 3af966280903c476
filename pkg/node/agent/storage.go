package agent

import (
	"bytes"
	"encoding/json"
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// storedState is what the agent stores in a file, besides the table.
type storedState struct {
	Location routing.Location         `json:"place"`
	Unknown  []string                 `json:"unknown,omitempty"`
	Tunnels  map[string]routing.State `json:"tunnels"`
}

// load reads what an earlier run stored. What cannot be read counts as missing: the tunnels'
// specifications have the rest.
func (a *Agent) load() {
	for _, load := range []func() error{a.loadState, a.loadSpecs, a.loadTable} {
		if err := load(); err != nil {
			a.options.Log.Warn("files of an earlier run cannot be used", "err", err)
		}
	}
}

func (a *Agent) loadState() error {
	text, err := a.options.Dir.State().Read()
	if err != nil || text == nil {
		return err
	}
	var n storedState
	if err := json.Unmarshal(text, &n); err != nil {
		return fmt.Errorf("reading the stored state: %w", err)
	}
	a.location, a.unknown, a.stored = n.Location, n.Unknown, text
	for name, state := range n.Tunnels {
		a.states[name] = state.Loaded(a.started)
	}
	return nil
}

// loadSpecs prefers a specification to the stored state, which is written before it.
func (a *Agent) loadSpecs() error {
	names, err := a.options.Dir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := a.options.Dir.Spec(name).Read()
		if err != nil {
			return err
		}
		tunnel, err := tunnelspec.Decode(text)
		if err != nil {
			a.logOf(name).Warn("specification of an earlier run cannot be used", "err", err)
			continue
		}
		state, known := a.states[name]
		state.RestartSerial = max(state.RestartSerial, tunnel.Restart)
		if !known {
			state.Port = int(tunnel.Accept.Port())
			state.Standby = tunnel.Accept.Addr().String() == wellknown.StandbyAddress
		}
		a.states[name], a.written[name] = state, text
	}
	return nil
}

func (a *Agent) loadTable() error {
	text, err := a.options.Dir.Table().Read()
	if err != nil || text == nil {
		return err
	}
	table, _, err := routing.ReadTable(text, ports.Table{})
	if err != nil {
		return fmt.Errorf("reading the stored table: %w", err)
	}
	a.table, a.hasTable = table, true
	a.options.Log.Info("using the table of an earlier run until the apiserver answers")
	return nil
}

// save stores the state if it has changed.
func (a *Agent) save() error {
	text, err := json.Marshal(storedState{a.location, a.unknown, a.states})
	if err != nil {
		return fmt.Errorf("storing the state: %w", err)
	}
	if bytes.Equal(text, a.stored) {
		return nil
	}
	if err := a.options.Dir.State().Write(text); err != nil {
		return err
	}
	a.stored = text
	return nil
}
