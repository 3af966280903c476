package main

import (
	"cmp"
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
	Takeovers []takeover `json:"takeovers,omitempty"`
	Idle      *idle      `json:"idle,omitempty"`
	Scales    []scale    `json:"scales,omitempty"`
	Churn     *churn     `json:"churn,omitempty"`
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
	return fmt.Sprintf("%s %g", t.bound, t.limit)
}

// verdict marks what missed its target.
func (t target) verdict(n float64) string {
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
	if r.unit == perSecond {
		times = 1 / times
	}
	return fmt.Sprintf("%.2g×", times)
}

const perSecond = "claims/s"

// writeTable writes what was measured for people.
func (r results) writeTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %d CPUs (%s), of which others used %s\n\n", r.Began.Format(time.DateOnly), r.Machine.CPUs, r.Machine.CPU, r.others())
	text.WriteString("| measure | manager | unit | target | | library | ratio |\n|---|--:|---|--:|---|--:|--:|\n")
	for _, row := range slices.Concat(r.aloneRows(), r.burstRows(), r.takeoverRows(), r.idleRows(), r.scaleRows(), r.churnRows()) {
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s | %s |\n", row.what, number(row.ours), row.unit,
			row.target, row.target.verdict(row.ours), optional(row.peer), row.ratio())
	}
	text.WriteString(r.ceiling())
	_, err := io.WriteString(w, text.String())
	return err
}

// ceiling says what no provisioner can pass on this machine.
func (r results) ceiling() string {
	if len(r.Ceilings) == 0 {
		return ""
	}
	var rates []float64
	for _, c := range r.Ceilings {
		rates = append(rates, c.Bind.Rate)
	}
	slices.Sort(rates)
	return fmt.Sprintf("\nThe cluster's own binder, when all volumes were made at once and nobody else worked: %s %s.\n", number(rates[len(rates)/2]), perSecond)
}

// others is how many CPUs others used, at least and at most.
func (r results) others() string {
	var all []float64
	for _, a := range r.Alone {
		all = append(all, a.Conditions.Others)
	}
	for _, c := range r.Ceilings {
		all = append(all, c.Conditions.Others)
	}
	for _, b := range r.Bursts {
		all = append(all, b.Conditions.Others)
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
	return fmt.Sprintf("%.1f to %.1f", slices.Min(all), slices.Max(all))
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

func (r results) aloneRows() []row {
	if len(r.Alone) == 0 {
		return nil
	}
	ours, peer := r.Alone[0], alone{}
	if len(r.Alone) > 1 {
		peer = r.Alone[1]
	}
	return []row{
		{"one claim, beyond the pod's own time, median", ours.Beyond.Median, "ms", target{300, atMost}, peer.Beyond.Median},
		{"… worst", ours.Beyond.Max, "ms", target{}, peer.Beyond.Max},
		{"… asked for → its Job, median", ours.Started.Median, "ms", target{}, 0},
		{"… API writes", ours.Writes, "writes", target{}, peer.Writes},
		{"its deletion, beyond the pod's own time, median", ours.Deleted.Median, "ms", target{}, peer.Deleted.Median},
		{"… API writes", ours.DeleteWrites, "writes", target{}, peer.DeleteWrites},
	}
}

// burstRows compare like with like, the library with the same limits, and both as they come.
func (r results) burstRows() []row {
	var rows []row
	for _, ours := range r.medians(managerName) {
		compared := false
		for _, peer := range r.medians(libraryName) {
			if ours.Limits == peer.Limits || ours.Limits == defaultLimits() && peer.Limits == clientGoLimits() {
				rows, compared = append(rows, compare(ours, &peer)...), true
			}
		}
		if !compared {
			rows = append(rows, compare(ours, nil)...)
		}
	}
	return rows
}

// compare has no peer where it is nil.
func compare(ours burst, peer *burst) []row {
	what := fmt.Sprintf("%d claims, limits %d/%d", ours.Claims, ours.Limits.QPS, ours.Limits.Burst)
	if peer == nil {
		peer = &burst{}
	} else {
		what += fmt.Sprintf(" (library: %d claims, limits %d/%d, %d threads)", peer.Claims, peer.Limits.QPS, peer.Limits.Burst, peer.Workers)
	}
	return []row{
		{what + ": Bound", ours.Create.Rate, perSecond, target{150, atLeast}, peer.Create.Rate},
		{"… API writes for each", ours.Create.Writes, "writes", target{3, atMost}, peer.Create.Writes},
		{"… deleted", ours.Delete.Rate, perSecond, target{150, atLeast}, peer.Delete.Rate},
		{"… API writes for each", ours.Delete.Writes, "writes", target{3, atMost}, peer.Delete.Writes},
	}
}

// medians are the median rounds of a contender, one for each of its settings, in their order.
func (r results) medians(contender string) []burst {
	type settings struct {
		limits  limits
		workers int
	}
	rounds := map[settings][]burst{}
	var order []settings
	for _, b := range r.Bursts {
		s := settings{b.Limits, b.Workers}
		if b.Contender != contender {
			continue
		}
		if rounds[s] == nil {
			order = append(order, s)
		}
		rounds[s] = append(rounds[s], b)
	}
	var medians []burst
	for _, s := range order {
		all := rounds[s]
		median := all[0]
		slices.SortFunc(all, func(a, b burst) int { return cmp.Compare(a.Create.Rate, b.Create.Rate) })
		median.Create = all[len(all)/2].Create
		slices.SortFunc(all, func(a, b burst) int { return cmp.Compare(a.Delete.Rate, b.Delete.Rate) })
		median.Delete = all[len(all)/2].Delete
		medians = append(medians, median)
	}
	return medians
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
		{"… start to leading and synced", i.Start.Median, "s", target{5, atMost}, 0},
	}
}
