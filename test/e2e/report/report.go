// Package report writes what a run of acceptance found as Markdown, for an issue.
package report

import (
	"fmt"
	"strings"
	"time"
)

// Report is the report of one run.
type Report struct {
	Began     time.Time
	Took      time.Duration
	Facts     []Fact // about cluster, product and settings
	Class     string // as YAML
	Scenarios []Scenario
}

// Fact is a row of the first table.
type Fact struct{ Name, Value string }

// Scenario is one that ran, or was skipped for what its first note says.
type Scenario struct {
	Name     string
	Result   Result
	Took     time.Duration
	Notes    []string
	Failures []string
	Evidence []Output // of the first failure
}

// Result is the end of a scenario.
type Result string

// The results.
const (
	Passed  Result = "passed"
	Failed  Result = "failed"
	Skipped Result = "skipped"
)

// Output is the output of a command.
type Output struct{ Command, Text string }

// Markdown returns the report as text.
func (r Report) Markdown() string {
	count := map[Result]int{}
	for _, s := range r.Scenarios {
		count[s.Result]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# efs-stunnel acceptance: %d passed, %d failed, %d skipped\n\n", count[Passed], count[Failed], count[Skipped])
	b.WriteString("| | |\n|---|---|\n")
	for _, f := range append([]Fact{{"began", r.Began.UTC().Format(time.RFC3339)}, {"took", seconds(r.Took)}}, r.Facts...) {
		row(&b, f.Name, f.Value)
	}
	b.WriteString("\n")
	fenced(&b, "yaml", r.Class)
	b.WriteString("\n## Scenarios\n\n| scenario | result | duration | |\n|---|---|---|---|\n")
	for _, s := range r.Scenarios {
		row(&b, s.Name, string(s.Result), seconds(s.Took), strings.Join(s.Notes, "; "))
	}
	for _, s := range r.Scenarios {
		if s.Result == Failed {
			s.explain(&b)
		}
	}
	return b.String()
}

// explain writes why a scenario failed.
func (s Scenario) explain(b *strings.Builder) {
	fmt.Fprintf(b, "\n## Failed: %s\n\n", s.Name)
	fenced(b, "", strings.Join(s.Failures, "\n"))
	for _, o := range s.Evidence {
		fmt.Fprintf(b, "\n`%s`\n\n", o.Command)
		fenced(b, "", o.Text)
	}
}

// fenced writes a block of code, whatever the text has.
func fenced(b *strings.Builder, language, text string) {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	fmt.Fprintf(b, "%s%s\n%s\n%s\n", fence, language, strings.TrimSpace(text), fence)
}

// row writes a row of a table. Cells have no line ends.
func row(b *strings.Builder, cells ...string) {
	for _, cell := range cells {
		cell = strings.Join(strings.Fields(cell), " ")
		fmt.Fprintf(b, "| %s ", strings.ReplaceAll(cell, "|", `\|`))
	}
	b.WriteString("|\n")
}

func seconds(d time.Duration) string { return d.Round(time.Second).String() }
