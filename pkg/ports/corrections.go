package ports

import "fmt"

// correctVolumes compares every volume's port with the table. The annotation says which file system the
// volume is on; the port option follows, for pods would be on another file system otherwise.
func (p *planner) correctVolumes() {
	for _, v := range p.volumes {
		if v.On.FileSystem == "" {
			continue // not ours
		}
		want, ok := p.table.Port(v.On)
		if !ok {
			p.reportUncorrectable(v)
			continue
		}
		if v.Port != want {
			p.out.Corrections = append(p.out.Corrections, Correction{
				Volume: v.Name, On: v.On, From: v.Port, To: want,
				Reason: p.correctionReason(v, want),
			})
			if p.in.Range.allows(v.Port) {
				p.table.Retired = append(p.table.Retired, v.Port) // pods use it as long as they run
			}
		}
	}
}

func (p *planner) correctionReason(v Volume, want int) string {
	is := fmt.Sprintf("the port of %s is %d", v.On, want)
	if v.Port == 0 {
		return "the volume has no port; " + is
	}
	if owner, ok := p.owners[v.Port]; ok {
		return fmt.Sprintf("%s, and %d is that of %s", is, v.Port, owner)
	}
	return fmt.Sprintf("%s, and %d has no tunnel", is, v.Port)
}

// reportUncorrectable reports a volume whose file system or access point is not in the table.
func (p *planner) reportUncorrectable(v Volume) {
	if err := v.On.check(); err != nil {
		p.report(Event{Kind: Conflict, Volume: v.Name}, "the volume's annotation is wrong: %v", err)
	} else if owner, ok := p.owners[v.Port]; ok {
		p.report(Event{Kind: Conflict, FileSystem: v.On.FileSystem, Volume: v.Name},
			"the volume's port %d is that of %s, and %s has none: pods must not use it", v.Port, owner, v.On)
	}
}
