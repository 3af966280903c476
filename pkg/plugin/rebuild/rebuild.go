package rebuild

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
)

// Rebuild makes volumes of what ledgers have of one cluster.
type Rebuild struct {
	Cluster
	Choice           // the class is for owners whose own class is not known or not there
	Of        string // the uid of the cluster, which may be this one
	Namespace string // "" is all
	Retained  bool   // also what no volume had any more
}

type entry struct {
	fileSystem string
	requests.Owned
}

// Plan makes volumes of the owners in ledgers, by file system.
func (r Rebuild) Plan(ledgers map[string][]requests.Owned) []Item {
	var items []Item
	taken, waiting := map[types.NamespacedName]string{}, r.waiting()
	for _, e := range r.entries(ledgers) {
		item := Item{FileSystem: e.fileSystem, Path: e.Path, Namespace: e.Namespace, Claim: e.Claim, Volume: e.Volume, State: Planned}
		claim := types.NamespacedName{Namespace: e.Namespace, Name: e.Claim}
		switch why := r.notWanted(e, waiting); {
		case why != "":
			item.end(Left, why)
		case taken[claim] != "":
			item.end(Left, "a later claim of this name had volume "+taken[claim])
		default:
			taken[claim] = e.Volume
			r.plan(&item, e)
		}
		items = append(items, item)
	}
	slices.SortFunc(items, byPath)
	return items
}

func byPath(a, b Item) int {
	return cmp.Or(cmp.Compare(a.FileSystem, b.FileSystem), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Volume, b.Volume))
}

// entries returns the cluster's entries, owners before marks, later ones before earlier ones. What an interrupted
// run has taken over is this cluster's already.
func (r Rebuild) entries(ledgers map[string][]requests.Owned) []entry {
	var entries []entry
	for fileSystem, ledger := range ledgers {
		for _, owned := range ledger {
			of := owned.Cluster == r.Of || owned.Cluster == r.UID && owned.TakenFrom == r.Of
			if of && !owned.Unreadable && (r.Namespace == "" || owned.Namespace == r.Namespace) {
				entries = append(entries, entry{fileSystem, owned})
			}
		}
	}
	rank := map[bool]int{false: 0, true: 1}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(
			rank[a.Retained]-rank[b.Retained], b.Since.Compare(a.Since),
			cmp.Compare(a.fileSystem, b.fileSystem), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Volume, b.Volume),
		)
	})
	return withoutOldMarks(entries)
}

// withoutOldMarks leaves out a mark beside an owner of the same volume: an earlier run has used it.
func withoutOldMarks(entries []entry) []entry {
	type key struct{ fileSystem, path, volume string }
	seen := map[key]bool{}
	return slices.DeleteFunc(entries, func(e entry) bool {
		k := key{e.fileSystem, e.Path, e.Volume}
		old := e.Retained && seen[k]
		seen[k] = true
		return old
	})
}

// waiting returns the claims without a volume, by uid.
func (r Rebuild) waiting() map[string]string {
	names := map[string]string{}
	for name, claim := range r.Claims {
		if claim.Spec.VolumeName == "" {
			names[string(claim.UID)] = name.String()
		}
	}
	return names
}

// notWanted returns why an entry becomes no volume, or "".
func (r Rebuild) notWanted(e entry, waiting map[string]string) string {
	switch {
	case e.Leaving:
		return "its cleanup has begun"
	case e.Reads:
		return "it only reads the directory of another claim"
	case e.Retained && !r.Retained:
		return "no volume had it any more: --retained makes one"
	case waiting[e.ClaimUID] != "":
		return "claim " + waiting[e.ClaimUID] + " waits for it: the manager makes its volume"
	}
	return ""
}

func (r Rebuild) plan(item *Item, e entry) {
	owner, choice := requests.Volume{
		Name: e.Volume, Path: e.Path, Namespace: e.Namespace, Class: e.Class,
		Claim: e.Claim, ClaimUID: e.ClaimUID, Made: e.Made && !e.Retained, GID: e.GID,
	}, r.Choice
	if namespace := r.Namespaces[e.Namespace]; namespace != nil {
		owner.NamespaceUID = string(namespace.UID)
	}
	if _, err := r.class(e.Class); err != nil && r.Class != "" {
		owner.Class = r.Class
	}
	if e.Retained {
		choice.Policy = corev1.PersistentVolumeReclaimRetain
	}
	if r.Cluster.plan(item, owner, "", choice); item.State == Planned {
		r.takeOver(item, e, owner)
	}
}

// takeOver plans the owner. One that is right is recorded again with a new volume, so that a directory that
// has gone meanwhile is noticed.
func (r Rebuild) takeOver(item *Item, e entry, owner requests.Volume) {
	isOwn, isAnother := e.Cluster == r.UID && !e.Retained, owner.NamespaceUID != "" && e.NamespaceUID != owner.NamespaceUID
	if isOwn && !isAnother && item.NewVolume == nil {
		if item.NewClaim == nil {
			item.State = Exists
		}
		return
	}
	if isOwn && isAnother && e.TakenFrom == "" && e.NamespaceUID != "" {
		item.Note = "namespace " + e.Namespace + " was deleted and made again since"
	}
	item.Adoption = &owner
}

// Others counts the owners of other clusters, by cluster, and below "" the entries without a readable owner.
func (r Rebuild) Others(ledgers map[string][]requests.Owned) map[string]int {
	others := map[string]int{}
	for _, ledger := range ledgers {
		for _, owned := range ledger {
			if owned.Unreadable || owned.Cluster != r.Of && owned.Cluster != r.UID && !owned.Retained {
				others[owned.Cluster]++
			}
		}
	}
	return others
}

// Paths returns the paths of the planned items that create a volume, by file system.
func Paths(items []Item) map[string][]string {
	paths := map[string][]string{}
	for _, item := range items {
		if item.State == Planned && item.NewVolume != nil {
			paths[item.FileSystem] = append(paths[item.FileSystem], item.Path)
		}
	}
	return paths
}

// RefuseMissing refuses the items whose directories can be no volumes, or are not in the answer.
func RefuseMissing(items []Item, directories map[string][]requests.Directory) {
	problems := map[string]string{}
	for fileSystem, found := range directories {
		for _, d := range found {
			problems[fileSystem+d.Path] = d.Problem
		}
	}
	for i := range items {
		item := &items[i]
		if item.State != Planned || item.NewVolume == nil {
			continue
		}
		problem, answered := problems[item.FileSystem+item.Path]
		switch {
		case !answered:
			item.end(Refused, "its directory was not listed")
		case problem != "":
			item.end(Refused, problem)
		}
	}
}
