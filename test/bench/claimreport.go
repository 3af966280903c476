package main

import (
	"cmp"
	"fmt"
	"slices"
)

func (r results) aloneRows() []row {
	var rows []row
	for _, ours := range r.Alone {
		switch {
		case ours.Contender != managerName:
		case ours.Warm:
			rows = append(rows, ours.warmRows(r.alonePeer())...)
		default:
			rows = append(rows, ours.coldRows(r.alonePeer())...)
		}
	}
	return rows
}

// alonePeer is the library's; zero without it.
func (r results) alonePeer() alone {
	for _, a := range r.Alone {
		if a.Contender == libraryName {
			return a
		}
	}
	return alone{}
}

func (a alone) coldRows(peer alone) []row {
	return []row{
		{"one claim, beyond the pod's own time, median", a.Beyond.Median, "ms", target{300, atMost}, peer.Beyond.Median},
		{"… worst", a.Beyond.Max, "ms", target{}, peer.Beyond.Max},
		{"… asked for → its Job, median", a.Started.Median, "ms", target{}, 0},
		{"… API writes", a.Writes, "writes", target{}, peer.Writes},
		{"its deletion, beyond the pod's own time, median", a.Deleted.Median, "ms", target{}, peer.Deleted.Median},
		{"… API writes", a.DeleteWrites, "writes", target{}, peer.DeleteWrites},
	}
}

func (a alone) warmRows(peer alone) []row {
	return []row{
		{fmt.Sprintf("one of %d claims with a warm worker: asked for → Bound, median", a.Claims), a.Bound.Median, "ms", target{100, atMost}, peer.Bound.Median},
		{"… worst", a.Bound.Max, "ms", target{}, peer.Bound.Max},
		{"… request → Bound, median", a.Beyond.Median, "ms", target{}, peer.Beyond.Median},
		{"… asked for → a Job has its operation, median", a.Started.Median, "ms", target{}, 0},
		{"… API writes", a.Writes, "writes", target{}, peer.Writes},
		{"its deletion with a warm worker → volume gone, median", a.Deleted.Median, "ms", target{150, atMost}, peer.Deleted.Median},
		{"… worst", a.Deleted.Max, "ms", target{}, peer.Deleted.Max},
		{"… API writes", a.DeleteWrites, "writes", target{}, peer.DeleteWrites},
		{"mount Jobs of all those claims", float64(a.Jobs), "Jobs", target{}, 0},
	}
}

// ceiling is the median rate of the cluster's own binder; 0 if it was not measured.
func (r results) ceiling() float64 {
	var rates []float64
	for _, c := range r.Ceilings {
		rates = append(rates, c.Bind.Rate)
	}
	if len(rates) == 0 {
		return 0
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// ceilingLine is about the rate that no provisioner can exceed on this machine.
func (r results) ceilingLine() string {
	if len(r.Ceilings) == 0 {
		return ""
	}
	return fmt.Sprintf("\nThe cluster's own binder, when each volume existed as soon as the cluster asked for it and no provisioner ran: %s %s.\n", number(r.ceiling()), perSecond)
}

// Targets of a burst are relative to what was measured in the same run.
const (
	// ofCeiling and ofPeer are the least parts of the rates of the cluster's binder, and of the library
	// with its finalizer.
	ofCeiling = 0.95
	ofPeer    = 0.95
	// overPeer is how many times the library's time it may take until all volumes are there, and then
	// the start of one pod, for which the library does not wait.
	overPeer = 1.1
)

// burstRows compare like with like, the library with the same limits, and both as they come. A burst with a warm
// worker is compared with the cluster's binder alone: neither waits for a pod.
func (r results) burstRows() []row {
	var rows []row
	for _, ours := range r.medians(managerName) {
		rows = append(rows, r.ownRows(ours)...)
		if ours.Warm {
			continue
		}
		for _, peer := range r.medians(libraryName) {
			switch {
			case ours.Limits == peer.Limits && peer.Finalizer:
				rows = append(rows, compareDeletion(ours, peer)...)
			case ours.Limits == peer.Limits || ours.Limits == defaultLimits() && peer.Limits == clientGoLimits():
				rows = append(rows, compare(ours, peer)...)
			}
		}
	}
	return rows
}

// ownRows are those that no library is compared with.
func (r results) ownRows(ours burst) []row {
	binder := target{}
	if rate := r.ceiling(); rate > 0 {
		binder = target{ofCeiling * rate, atLeast}
	}
	if ours.Warm {
		return []row{
			{ours.what() + ", with a warm worker: Bound", ours.Create.Rate, perSecond, binder, 0},
			{"… deleted", ours.Delete.Rate, perSecond, target{}, 0},
		}
	}
	return []row{
		{ours.what() + ": Bound, also while the pod starts", ours.Create.Rate, perSecond, target{}, 0},
		{"… from the first volume on, as the binder alone is counted", ours.Create.FromVolume, perSecond, binder, 0},
		{"… deleted", ours.Delete.Rate, perSecond, target{}, 0},
		{"… API writes for each claim", ours.Create.Writes, "writes", target{3, atMost}, 0},
		{"… API writes for each deletion", ours.Delete.Writes, "writes", target{3, atMost}, 0},
		{"… mount Jobs of the claims", float64(len(ours.Create.Jobs)), "Jobs", target{}, 0},
		{"… mount Jobs of the deletions", float64(len(ours.Delete.Jobs)), "Jobs", target{}, 0},
	}
}

func (b burst) what() string {
	return fmt.Sprintf("%d claims, limits %d/%d", b.Claims, b.Limits.QPS, b.Limits.Burst)
}

func (b burst) asPeer() string {
	finalizer := ""
	if b.Finalizer {
		finalizer = " with its finalizer"
	}
	return fmt.Sprintf("(library%s: %d claims, limits %d/%d, %d threads)", finalizer, b.Claims, b.Limits.QPS, b.Limits.Burst, b.Workers)
}

func compare(ours, peer burst) []row {
	there := target{}
	if ours.Limits == peer.Limits && ours.Workers == peer.Workers {
		there = target{overPeer*peer.Create.Handover + podTime.Seconds(), atMost}
	}
	return []row{
		{ours.what() + " " + peer.asPeer() + ": all volumes there", ours.Create.Handover, "s", there, peer.Create.Handover},
		{"… Bound", ours.Create.Rate, perSecond, target{}, peer.Create.Rate},
		{"… API writes for each", ours.Create.Writes, "writes", target{}, peer.Create.Writes},
		{"… deleted", ours.Delete.Rate, perSecond, target{}, peer.Delete.Rate},
		{"… API writes for each", ours.Delete.Writes, "writes", target{}, peer.Delete.Writes},
	}
}

// compareDeletion is with a library whose deletions do what ours do.
func compareDeletion(ours, peer burst) []row {
	return []row{
		{ours.what() + " " + peer.asPeer() + ": deleted", ours.Delete.Rate, perSecond, target{ofPeer * peer.Delete.Rate, atLeast}, peer.Delete.Rate},
		{"… API writes for each", ours.Delete.Writes, "writes", target{}, peer.Delete.Writes},
		{"… Bound", ours.Create.Rate, perSecond, target{}, peer.Create.Rate},
	}
}

// medians are the median rounds of a contender, one for each of its settings, in their order.
func (r results) medians(contender string) []burst {
	type settings struct {
		limits    limits
		workers   int
		finalizer bool
		warm      bool
	}
	rounds := map[settings][]burst{}
	var order []settings
	for _, b := range r.Bursts {
		s := settings{b.Limits, b.Workers, b.Finalizer, b.Warm}
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
