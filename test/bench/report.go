package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// results are all that was measured.
type results struct {
	Began     time.Time  `json:"began"`
	Machine   machine    `json:"machine"`
	Alone     []alone    `json:"alone,omitempty"`
	Ceilings  []ceiling  `json:"ceilings,omitempty"`
	Bursts    []burst    `json:"bursts,omitempty"`
	Bindings  []burst    `json:"bindings,omitempty"`
	Streams   []stream   `json:"streams,omitempty"`
	Takeovers []takeover `json:"takeovers,omitempty"`
	Idle      *idle      `json:"idle,omitempty"`
	Scales    []scale    `json:"scales,omitempty"`
	Churn     *churn     `json:"churn,omitempty"`

	Clone   *comparison  `json:"clone,omitempty"`
	Surveys []comparison `json:"surveys,omitempty"`

	ReadAhead []reading    `json:"readAhead,omitempty"`
	Tunnel    []tunnelCost `json:"tunnel,omitempty"`
}

// row is one line of the table.
type row struct {
	what   string
	ours   float64
	unit   string
	target target
	peer   float64 // 0 for none
}

// target is what a number should be; the zero target is none.
type target struct {
	limit float64
	bound bound
}

type bound string

const (
	noBound bound = ""
	atLeast bound = "≥"
	atMost  bound = "≤"
)

func (t target) String() string {
	if t.bound == noBound {
		return ""
	}
	return fmt.Sprintf("%s %.4g", t.bound, t.limit)
}

// mark marks what missed its target.
func (t target) mark(n float64) string {
	switch {
	case t.bound == noBound:
		return ""
	case t.bound == atLeast && n < t.limit, t.bound == atMost && n > t.limit:
		return "**missed**"
	}
	return "met"
}

// ratio says how many times better ours is: faster, or less.
func (r row) ratio() string {
	if r.peer == 0 || r.ours == 0 {
		return ""
	}
	times := r.peer / r.ours
	if r.unit == perSecond || r.unit == filesPerSecond {
		times = 1 / times
	}
	return fmt.Sprintf("%.2g×", times)
}

const (
	perSecond      = "claims/s"
	filesPerSecond = "files/s"
)

// writeTable writes what was measured for people.
func (r results) writeTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %d CPUs (%s)%s\n\n", r.Began.Format(time.DateOnly), r.Machine.CPUs, r.Machine.CPU, r.others())
	writeRows(&text, "manager", "library", slices.Concat(r.aloneRows(), r.burstRows(), r.bindingRows(), r.streamRows(), r.takeoverRows(), r.idleRows(), r.scaleRows(), r.churnRows()))
	text.WriteString(r.ceilingLine())
	writeRows(&text, "Job", "cp, du", r.fileRows())
	text.WriteString(readAheadTable(r.ReadAhead))
	text.WriteString(tunnelTables(r.Tunnel))
	_, err := io.WriteString(w, text.String())
	return err
}

func writeRows(w io.Writer, ours, peer string, rows []row) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "| measure | %s | unit | target | | %s | ratio |\n|---|--:|---|--:|---|--:|--:|\n", ours, peer)
	for _, row := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", row.what, number(row.ours), row.unit,
			row.target, row.target.mark(row.ours), optional(row.peer), row.ratio())
	}
}

// others is how many CPUs others used, at least and at most. The parts readahead and tunnel do not say: the lab
// works for them.
func (r results) others() string {
	var all []float64
	for _, a := range r.Alone {
		all = append(all, a.Conditions.Others)
	}
	for _, c := range r.Ceilings {
		all = append(all, c.Conditions.Others)
	}
	for _, b := range slices.Concat(r.Bursts, r.Bindings) {
		all = append(all, b.Conditions.Others)
	}
	for _, s := range r.Streams {
		all = append(all, s.Conditions.Others)
	}
	for _, t := range r.Takeovers {
		all = append(all, t.Conditions.Others)
	}
	if r.Idle != nil {
		all = append(all, r.Idle.Conditions.Others)
	}
	for _, s := range r.Scales {
		all = append(all, s.Conditions.Others)
	}
	if r.Churn != nil {
		all = append(all, r.Churn.Conditions.Others)
	}
	for _, c := range r.comparisons() {
		all = append(all, c.Conditions.Others)
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf(", of which others used %.1f to %.1f", slices.Min(all), slices.Max(all))
}

func number(n float64) string {
	switch {
	case n >= 100 || n == 0:
		return fmt.Sprintf("%.0f", n)
	case n >= 10:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.2f", n)
}

func optional(n float64) string {
	if n == 0 {
		return ""
	}
	return number(n)
}

func (r results) takeoverRows() []row {
	var rows []row
	for _, ours := range r.Takeovers {
		if ours.Contender != managerName {
			continue
		}
		var peer takeover
		for _, t := range r.Takeovers {
			if t.Contender != managerName && t.Lease == ours.Lease {
				peer = t
			}
		}
		rows = append(rows,
			row{"takeover, lease " + ours.Lease + ": clean stop → next claim begun, worst", ours.Clean.Max, "s", target{1, atMost}, peer.Clean.Max},
			row{"… killed → next claim begun, worst", ours.Killed.Max, "s", target{ours.Seconds + 2, atMost}, peer.Killed.Max},
			row{"… Lease writes a minute", ours.LeaseWrites, "writes", target{}, peer.LeaseWrites},
		)
	}
	return rows
}

func (r results) idleRows() []row {
	if r.Idle == nil {
		return nil
	}
	i := r.Idle
	return []row{
		{fmt.Sprintf("%d bound volumes: resident memory", i.Volumes), i.Memory.Now, "MiB", target{120, atMost}, 0},
		{"… at its peak", i.Memory.Peak, "MiB", target{}, 0},
		{"… reads a minute when idle", i.Reads, "reads", target{10, atMost}, 0},
		{"… writes a minute when idle, without the Lease's", i.Writes, "writes", target{0, atMost}, 0},
		{"… workers left", float64(i.Workers), "Jobs", target{0, atMost}, 0},
		{"… start to leading and synced", i.Start.Median, "s", target{5, atMost}, 0},
	}
}
