package volumes

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

// Candidate is a file system with the fields that the choice for one claim reads.
type Candidate struct {
	ID        string
	Port      int // of its tunnel; 0 while it has none
	Tags      map[string]string
	OneZone   string   // the zone of a One Zone file system, else ""
	Zones     []string // with mount targets; empty if unknown
	Unusable  string   // why it cannot serve now, or ""
	HoldsPath bool     // it has the claim's path, or the directory that the claim wants restored
}

// Choice is the file system and the zone of a claim's volume, or the reason why there is none yet. One of
// FileSystemID, Wait and GiveNodeBack is set.
type Choice struct {
	FileSystemID string
	Zone         string // that the volume's pods must be in, or ""
	Wait         string // what is missing, in a sentence
	Cause        string // of the wait, where another claim is missing: one of package status
	// Unknown says that the wait may be for a file system that was not listed yet, so the EFS API should be polled.
	Unknown bool
	// GiveNodeBack says why no pod on the selected node can have this volume, so that another one is selected.
	GiveNodeBack string
}

// Choose selects the file system for a claim. The zone is that of the claim's node, "" if there
// is no node or it has none. Excluded are file systems that the manager's settings leave out, with why. The
// error is a Refusal.
//
// A file system that holds the path is chosen even while it is not usable: on another one, the
// claim would get other data under the same name.
func Choose(claim Claim, class Class, zone string, candidates []Candidate, excluded map[string]string) (Choice, error) {
	candidates = slices.SortedFunc(slices.Values(candidates), func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) })
	wanted := cmp.Or(claim.FileSystemID, class.DefaultFileSystemID)
	allowed, err := allowedCandidates(wanted, class, candidates)
	if err == nil && claim.SourceFileSystemID != "" {
		wanted = claim.SourceFileSystemID
		allowed, err = onSource(claim, class, allowed, candidates)
	}
	if err != nil {
		return Choice{}, err
	}
	if len(allowed) == 0 {
		return Choice{Wait: notFound(wanted, class, excluded), Unknown: true}, nil
	}
	if holders := keep(allowed, func(c Candidate) bool { return c.HoldsPath }); len(holders) > 0 {
		allowed = holders
	}
	if claim.Restore != "" && len(allowed) > 1 {
		return Choice{}, refuse(fmt.Sprintf("%s could have the directory of claim %s: add the label %s with the right one to spec.selector.matchLabels",
			names(allowed), claim.Restore, wellknown.LabelFileSystemID))
	}
	near := keep(allowed, func(c Candidate) bool { return c.servesOneOf(class.Zones) })
	if len(near) == 0 {
		return Choice{}, refuse(fmt.Sprintf("%s, where storage class %s allows volumes", lackMountTarget(allowed, class.Zones...), quoted(class.Name)))
	}
	return chooseNear(claim, class, zone, near), nil
}

func chooseNear(claim Claim, class Class, zone string, candidates []Candidate) Choice {
	if zone != "" && claim.Node != "" {
		nearer := keep(candidates, func(c Candidate) bool { return c.servesOneOf([]string{zone}) })
		if len(nearer) == 0 {
			return Choice{GiveNodeBack: fmt.Sprintf("%s, where node %s is", lackMountTarget(candidates, zone), plain(claim.Node))}
		}
		candidates = nearer
	}
	usable := keep(candidates, func(c Candidate) bool { return c.unusable() == "" })
	if len(usable) == 0 {
		return Choice{Wait: whyUnusable(candidates)}
	}
	best := highestScore(claim.Path, usable)
	choice := Choice{FileSystemID: best.ID}
	if class.EnforceZoneAffinity {
		choice.Zone = best.OneZone
	}
	return choice
}

// allowedCandidates returns the candidates that claim and class allow: the wanted one, or all if none is wanted.
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
			wanted, quoted(class.Name), quoted(labels.Set(class.FileSystemTags).String())))
	}
	return keep(tagged, isWanted), nil
}

// onSource leaves the file system of the claim's source: a copy is made inside of one.
func onSource(claim Claim, class Class, allowed, candidates []Candidate) ([]Candidate, error) {
	isSource := func(c Candidate) bool { return c.ID == claim.SourceFileSystemID }
	if slices.ContainsFunc(candidates, isSource) && !slices.ContainsFunc(allowed, isSource) {
		return nil, refuse(fmt.Sprintf("claim %s is on file system %s, where a copy of it must be, and this claim or storage class %s asks for another one",
			quoted(claim.Source), claim.SourceFileSystemID, quoted(class.Name)))
	}
	return keep(allowed, isSource), nil
}

// servesOneOf reports whether there is a mount target in one of the zones; nil is any zone.
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
	return slices.DeleteFunc(slices.Clone(candidates), func(c Candidate) bool { return !wanted(c) })
}

func notFound(wanted string, class Class, excluded map[string]string) string {
	const elsewhere = ", and does the manager look in its account, region and VPC?"
	switch {
	case excluded[wanted] != "":
		return fmt.Sprintf("file system %s exists, but %s", wanted, excluded[wanted])
	case wanted == "" && len(excluded) > 0:
		id := slices.Min(slices.Collect(maps.Keys(excluded)))
		return fmt.Sprintf("no file system that storage class %s allows is in use, and the manager's settings leave out %d, such as %s: %s",
			quoted(class.Name), len(excluded), id, excluded[id])
	case wanted != "":
		return fmt.Sprintf("file system %s is not found yet: is its ID right", wanted) + elsewhere
	}
	return fmt.Sprintf("no file system that storage class %s allows is found yet: are its parameters right", quoted(class.Name)) + elsewhere
}

func whyUnusable(candidates []Candidate) string {
	var reasons []string
	for _, c := range candidates {
		reasons = append(reasons, fmt.Sprintf("file system %s is not usable: %s", c.ID, c.unusable()))
	}
	return string(refuse(reasons...))
}

func lackMountTarget(candidates []Candidate, zones ...string) string {
	verb := "are"
	if len(candidates) == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s %s without a mount target in %s", names(candidates), verb, inZones(zones))
}

func names(candidates []Candidate) string {
	if len(candidates) == 1 {
		return "file system " + candidates[0].ID
	}
	var ids []string
	for _, c := range candidates {
		ids = append(ids, c.ID)
	}
	return "file systems " + operations.Shorten(strings.Join(ids, ", "), 3*maxQuotedBytes)
}

// highestScore chooses by rendezvous hashing (highest random weight): the score of a path and a file system depends on
// nothing else. So the order of the candidates does not matter, a new file system gets only the paths for which it
// has the highest score, and the paths of the others stay where they are when one is removed.
func highestScore(path string, candidates []Candidate) Candidate {
	return slices.MaxFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(score(path, a.ID), score(path, b.ID)), cmp.Compare(a.ID, b.ID))
	})
}

// score must never change: it leads to retained data.
func score(path, id string) uint64 {
	sum := sha256.Sum256([]byte(id + "\x00" + path))
	return binary.BigEndian.Uint64(sum[:8])
}
