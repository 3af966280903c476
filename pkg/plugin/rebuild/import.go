package rebuild

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Import makes volumes of directories that nobody owns. With the policy Delete they get the right to remove them.
type Import struct {
	Cluster
	Choice
	FileSystem string
	// TrustNames also plans claims that only the name of a path says, or a volume that is not bound.
	TrustNames bool
}

// Wanted is a directory that is to be the volume of a claim.
type Wanted struct {
	Namespace, Claim string // "" if they cannot even be guessed
	Path             string
	AccessPoint      string // on the directory, whose user its files have; "" if none is known
	GID              int    // a group for pods that use it, or 0
	Doubt            string // why the claim is a guess, or ""
}

// question asks for what settles a doubt.
func (w Wanted) question() string {
	text := w.Doubt + ": say whose it is by NAMESPACE/CLAIM=" + w.Path
	if w.Claim == "" {
		return text
	}
	return text + ", or believe that with --trust-path-names"
}

// isDoubted reports whether a directory is not planned because its claim is a guess.
func (i Import) isDoubted(w Wanted) bool { return w.Doubt != "" && (!i.TrustNames || w.Claim == "") }

// Plan makes volumes of directories. The ledger and the directories are those of the file system.
func (i Import) Plan(wanted []Wanted, found []requests.Directory, ledger []requests.Owned) []Item {
	directories := map[string]requests.Directory{}
	for _, d := range found {
		directories[d.Path] = d
	}
	owners, twice := newOwners(ledger), duplicates(slices.DeleteFunc(slices.Clone(wanted), i.isDoubted))
	var items []Item
	for _, w := range wanted {
		d, answered := directories[w.Path]
		if !answered {
			d.Problem = "there is no such directory"
		}
		if w.GID == 0 && d.Setgid && d.GID >= wellknown.LowestGIDMin {
			w.GID = d.GID // what is created in it has this group
		}
		item, doubted := Item{FileSystem: i.FileSystem, Path: w.Path, State: Planned}, i.isDoubted(w)
		if !doubted {
			item.Namespace, item.Claim, item.Volume = w.Namespace, w.Claim, i.volumeName(w)
		}
		switch why := cmp.Or(d.Problem, twice[w.Path], twice[item.Namespace+"/"+item.Claim], owners.other(item)); {
		case why != "":
			item.end(Refused, why)
		case doubted:
			item.end(Whose, w.question())
		default:
			i.plan(&item, w, owners.has(item))
		}
		items = append(items, item)
	}
	slices.SortFunc(items, byPath)
	return items
}

func (i Import) plan(item *Item, w Wanted, owned bool) {
	namespace := i.Namespaces[w.Namespace]
	if namespace == nil {
		item.end(Refused, "namespace "+w.Namespace+" does not exist")
		return
	}
	owner := requests.Volume{
		Name: item.Volume, Path: w.Path, Namespace: w.Namespace, NamespaceUID: string(namespace.UID), Class: i.Class,
		Claim: w.Claim, ClaimUID: strings.TrimPrefix(item.Volume, wellknown.VolumePrefix), Made: i.Policy == corev1.PersistentVolumeReclaimDelete, GID: w.GID,
	}
	i.Cluster.plan(item, owner, w.AccessPoint, i.Choice)
	switch {
	case item.State != Planned:
	case owned && item.NewVolume == nil && item.NewClaim == nil:
		item.State = Exists
	default:
		item.Adoption = &owner
	}
}

// volumeName returns the same name in each run, so that a run which died is completed by the next one.
func (i Import) volumeName(w Wanted) string {
	hash := sha256.Sum256([]byte(strings.Join([]string{i.UID, i.FileSystem, w.Path, w.Namespace, w.Claim}, "\n")))
	uid := hash[:16]
	uid[6], uid[8] = uid[6]&0x0f|0x80, uid[8]&0x3f|0x80 // version 8, of one's own making
	return volumes.VolumeName(types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", uid[:4], uid[4:6], uid[6:8], uid[8:10], uid[10:])))
}

// duplicates returns problems by claim or path: what is wanted twice, and paths inside others.
func duplicates(wanted []Wanted) map[string]string {
	problems, claims, paths := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, w := range wanted {
		name := w.Namespace + "/" + w.Claim
		if claims[name] {
			problems[name] = "claim " + name + " is wanted for several directories"
		}
		if paths[w.Path] {
			problems[w.Path] = "the directory is wanted for several claims"
		}
		claims[name], paths[w.Path] = true, true
	}
	for p := range paths {
		for at := parent(p); at != ""; at = parent(at) {
			if paths[at] {
				problems[p], problems[at] = "it is inside "+at+", which is wanted, too", "it contains "+p+", which is wanted, too"
			}
		}
	}
	return problems
}

// parent returns the directory above a path, "" for a directory of the root.
func parent(p string) string { return p[:max(0, strings.LastIndexByte(p, '/'))] }

type owners struct {
	at    map[string][]requests.Owned // by path
	below map[string]string           // a path of the ledger inside each directory above one
}

func newOwners(ledger []requests.Owned) owners {
	o := owners{map[string][]requests.Owned{}, map[string]string{}}
	for _, owned := range ledger {
		o.at[owned.Path] = append(o.at[owned.Path], owned)
		for above := parent(owned.Path); above != ""; above = parent(above) {
			o.below[above] = owned.Path
		}
	}
	return o
}

func (o owners) has(item Item) bool {
	return slices.ContainsFunc(o.at[item.Path], func(owned requests.Owned) bool {
		return owned.Volume == item.Volume && !owned.Retained && !owned.Leaving
	})
}

// other describes another owner of a directory, or of one above or below it; "" if there is none. Data that was
// retained for a claim of the namespace is left to the rules of mount Jobs.
func (o owners) other(item Item) string {
	for _, owned := range o.at[item.Path] {
		if owned.Volume != item.Volume && (!owned.Retained || owned.Namespace != item.Namespace) {
			return describe(owned, "it")
		}
	}
	if below, ok := o.below[item.Path]; ok {
		return describe(o.at[below][0], below+", which is inside,")
	}
	for at := parent(item.Path); at != ""; at = parent(at) {
		if len(o.at[at]) > 0 {
			return describe(o.at[at][0], at+", in which it is,")
		}
	}
	return ""
}

func describe(owned requests.Owned, what string) string {
	if owned.Unreadable {
		return fmt.Sprintf("%s has an owner in the ledger that cannot be read: %s", what, owned.Volume)
	}
	return fmt.Sprintf("%s belongs to volume %s (claim %s/%s of cluster %s): see kubectl efs-stunnel owners list",
		what, owned.Volume, owned.Namespace, owned.Claim, owned.Cluster)
}
