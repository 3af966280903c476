package ports

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

// checkSource ignores a listing of another account or region than the table's: what it lacks is
// not missing, and what it has is not the cluster's. A listing is used when it names the
// account and region of the table, or has at least a third of the file systems of the table. The
// administrator who means the other account writes it into the table.
//
//	table has      listing of     file systems of the table listed   listing
//	none           any            –                                  used; its source is recorded
//	any            same source    any number                         used
//	any            other or no    a third or more                    used; its source is recorded
//	any            other or no    fewer                              ignored; Output.Foreign
//
// An empty listing proves nothing anyway and is left to efs.Listing.Conclusive.
func (p *planner) checkSource() {
	l := p.in.Listing
	if len(l.FileSystems) == 0 {
		return
	}
	same := l.Source != "" && l.Source == p.table.Source
	known, listed := p.overlap()
	if !same && 3*listed < known {
		p.out.Foreign = foreignMessage(l, p.table.Source, known, listed)
		p.in.Listing, p.listed = efs.Listing{}, map[string]efs.FileSystem{}
		return
	}
	p.table.Source = cmp.Or(l.Source, p.table.Source)
}

// overlap counts the file systems that listings should show, which are those of the table and of
// the volumes that require one, and those of them that this one shows. Not counted are targets that
// are or were pinned, or are another installation's: they may be another account's.
func (p *planner) overlap() (known, listed int) {
	ids := sets.KeySet(p.table.Targets)
	for _, volume := range p.requiringVolumes() {
		if !volume.Foreign {
			ids.Insert(volume.On.FileSystem)
		}
	}
	for id := range ids {
		if p.table.Targets[id].PinnedOnly || p.pinned(id) {
			continue
		}
		known++
		if _, ok := p.listed[id]; ok {
			listed++
		}
	}
	return known, listed
}

func foreignMessage(l efs.Listing, source string, known, listed int) string {
	mend := "take those that no longer exist out of"
	if l.Source != "" {
		mend = "set account_and_region to " + l.Source + " in"
	}
	return fmt.Sprintf("the manager's AWS account or region looks wrong: the EFS API lists %d file systems of %s, "+
		"among them %d of the %d of the table, which is of %s. Nothing is added, marked missing or removed meanwhile, and all that "+
		"is in the table is served. Check the manager's AWS credentials and --aws-region; if they are right, %s key %s of ConfigMap %s",
		len(l.FileSystems), cmp.Or(l.Source, "an unknown account"), listed, known, cmp.Or(source, "an unknown account"),
		mend, wellknown.TargetsKey, wellknown.TargetsConfigMap)
}
