// Package output prints what a command reports: as tables for people or as JSON for programs.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"gnuthought.com/efs-stunnel/hack/lab/internal/oneof"
)

// Format is the value of --output.
type Format string

const (
	asTable Format = "table"
	asJSON  Format = "json"
)

// Flag adds --output to a command's flags.
func Flag(flags *pflag.FlagSet) *Format {
	format := asTable
	flags.VarP(oneof.Flag(&format, []Format{asTable, asJSON}), "output", "o", "table or json")
	return &format
}

// Row adds a row to a table. Empty cells are shown as "-", and a row without cells as an empty line.
type Row func(cells ...any)

// Print writes value as JSON, or the table that rows adds to.
func (f Format) Print(w io.Writer, value any, rows func(Row)) error {
	if f == asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows(func(cells ...any) {
		texts := make([]string, len(cells))
		for i, cell := range cells {
			if texts[i] = fmt.Sprint(cell); texts[i] == "" {
				texts[i] = "-"
			}
		}
		fmt.Fprintln(table, strings.Join(texts, "\t"))
	})
	return table.Flush()
}
