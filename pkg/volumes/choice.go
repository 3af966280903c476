package volumes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Candidate is a file system of the cluster, as far as the choice for one claim needs it.
type Candidate struct {
	ID        string
	Name      string // its Name tag, or ""
	Port      int    // of its tunnel; 0 while it has none
	Tags      map[string]string
	OneZone   string   // the zone of a One Zone file system, else ""
	Zones     []string // with mount targets; none if that is unknown
	Unusable  string   // why it cannot serve now, or ""
	HoldsPath bool     // the claim's path, or what it wants restored, is known to be on it
}

// Choice is where a claim's volume goes. One of FileSystemID, Wait and GiveNodeBack is set.
type Choice struct {
	FileSystemID string
	Zone         string // that the volume's pods must be in, or ""
	Wait         string // what is missing, in a sentence
	// Unknown says that the wait may be for a file system that discovery has not seen, so it
	// should look again at once.
	Unknown bool
	// GiveNodeBack says why the scheduler's node cannot have this volume; another may.
	GiveNodeBack string
}

// Choose finds the file system for a claim. The zone is that of the claim's node, "" if there
// is no node or it has none. The error is a Refusal.
//
// A file system that holds the path wins even when it is of no use at the moment: elsewhere
// the same name would meet other data.
func Choose(claim Claim, class Class, zone string, candidates []Candidate) (Choice, error) {
	wanted := cmp.Or(claim.FileSystemID, class.DefaultFileSystemID)
	allowed, err := allowedCandidates(wanted, class, candidates)
	if err != nil {
		return Choice{}, err
	}
	if len(allowed) == 0 {
		return Choice{Wait: notFound(wanted, class), Unknown: true}, nil
	}
	allowed = orAll(keep(allowed, func(c Candidate) bool { return c.HoldsPath }), allowed)
	if claim.Restore != "" && len(allowed) > 1 {
		return Choice{}, refuse(fmt.Sprintf("%s could have the directory of claim %s: add the label %s with the right one to spec.selector.matchLabels",
			names(allowed), claim.Restore, wellknown.LabelFileSystemID))
	}
	near := keep(allowed, func(c Candidate) bool { return c.servesOneOf(class.Zones) })
	if len(near) == 0 {
		return Choice{}, refuse(fmt.Sprintf("%s without a mount target in %s, where storage class %s allows volumes",
			areOrIs(allowed), inZones(class.Zones), quoted(class.Name)))
	}
	return chooseNear(claim, class, zone, near), nil
}

// chooseNear goes on with the candidates in the zones of the class.
func chooseNear(claim Claim, class Class, zone string, candidates []Candidate) Choice {
	if zone != "" && claim.Node != "" {
		nearer := keep(candidates, func(c Candidate) bool { return c.servesOneOf([]string{zone}) })
		if len(nearer) == 0 {
			return Choice{GiveNodeBack: fmt.Sprintf("%s without a mount target in %s, where node %s is",
				areOrIs(candidates), inZones([]string{zone}), plain(claim.Node))}
		}
		candidates = nearer
	}
	usable := keep(candidates, func(c Candidate) bool { return c.unusable() == "" })
	if len(usable) == 0 {
		return Choice{Wait: unusableOnes(candidates)}
	}
	best := rendezvous(claim.Path, usable)
	choice := Choice{FileSystemID: best.ID}
	if class.EnforceZoneAffinity {
		choice.Zone = best.OneZone
	}
	return choice
}

// allowedCandidates are those that claim and class may have: the wanted one, or all if none is.
func allowedCandidates(wanted string, class Class, candidates []Candidate) ([]Candidate, error) {
	tagged := keep(candidates, func(c Candidate) bool {
		return efs.Filter{Tags: class.FileSystemTags}.Match(efs.FileSystem{Tags: c.Tags})
	})
	isWanted := func(c Candidate) bool { return c.ID == wanted }
	switch {
	case wanted == "":
		return keep(tagged, func(c Candidate) bool {
			return len(class.FileSystemIDs) == 0 || slices.Contains(class.FileSystemIDs, c.ID)
		}), nil
	case slices.ContainsFunc(candidates, isWanted) && !slices.ContainsFunc(tagged, isWanted):
		return nil, refuse(fmt.Sprintf("file system %s lacks the tags that storage class %s asks for: %s",
			wanted, quoted(class.Name), showTags(class.FileSystemTags)))
	}
	return keep(tagged, isWanted), nil
}

// servesOneOf says whether a node in one of the zones has a mount target near; nil is any zone.
func (c Candidate) servesOneOf(zones []string) bool {
	own := c.Zones
	if c.OneZone != "" {
		own = []string{c.OneZone}
	}
	if zones == nil || len(own) == 0 {
		return true
	}
	return slices.ContainsFunc(own, func(zone string) bool { return slices.Contains(zones, zone) })
}

func (c Candidate) unusable() string {
	if c.Unusable == "" && c.Port == 0 {
		return "it has no local port yet; the events of ConfigMap " + wellknown.TargetsConfigMap + " say why"
	}
	return c.Unusable
}

func keep(candidates []Candidate, wanted func(Candidate) bool) []Candidate {
	var kept []Candidate
	for _, c := range candidates {
		if wanted(c) {
			kept = append(kept, c)
		}
	}
	return kept
}

func orAll(some, all []Candidate) []Candidate {
	if len(some) > 0 {
		return some
	}
	return all
}

// whereLooked is what keeps a file system that exists from being found.
const whereLooked = "and does the manager look in its account, region and VPC"

func notFound(wanted string, class Class) string {
	if wanted != "" {
		return fmt.Sprintf("file system %s is not found yet: is its ID right, %s?", wanted, whereLooked)
	}
	return fmt.Sprintf("no file system that storage class %s allows is found yet: are its parameters right, %s?", quoted(class.Name), whereLooked)
}

func unusableOnes(candidates []Candidate) string {
	var reasons []string
	for _, c := range sortedByID(candidates) {
		reasons = append(reasons, fmt.Sprintf("file system %s is not usable: %s", c.ID, c.unusable()))
	}
	return string(refuse(reasons...))
}

// areOrIs begins a sentence about what the file systems lack.
func areOrIs(candidates []Candidate) string {
	if len(candidates) == 1 {
		return names(candidates) + " is"
	}
	return names(candidates) + " are"
}

func names(candidates []Candidate) string {
	var ids []string
	for _, c := range sortedByID(candidates) {
		ids = append(ids, c.ID)
	}
	if len(ids) == 1 {
		return "file system " + ids[0]
	}
	return "file systems " + cut(strings.Join(ids, ", "), 3*maxQuotedBytes)
}

func sortedByID(candidates []Candidate) []Candidate {
	return slices.SortedFunc(slices.Values(candidates), func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) })
}

func showTags(tags map[string]string) string {
	var shown []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		shown = append(shown, key+"="+tags[key])
	}
	return quoted(strings.Join(shown, ","))
}
