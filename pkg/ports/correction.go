package ports

import (
	"fmt"
	"slices"
)

// correctVolumes compares every volume's port with the table. The annotation says what the
// volume is on; the port option follows, for pods would be on another file system otherwise.
func (p *planner) correctVolumes() {
	for _, v := range p.volumes {
		if v.On.FileSystem == "" {
			continue // not ours
		}
		want, ok := p.table.Port(v.On)
		if !ok {
			p.reportStray(v)
			continue
		}
		if v.Port != want {
			p.out.Corrections = append(p.out.Corrections, Correction{
				Volume: v.Name, On: v.On, From: v.Port, To: want,
				Reason: p.correctionReason(v, want),
			})
			p.cede(v.Port)
		}
	}
}

// cede retires the port that a volume gives up: pods that mounted the volume before use it
// until they end.
func (p *planner) cede(port int) {
	_, used := p.owners[port]
	if !used && p.in.Range.allows(port) && !slices.Contains(p.table.Retired, port) {
		p.table.Retired = append(p.table.Retired, port)
	}
}

func (p *planner) correctionReason(v Volume, want int) string {
	is := fmt.Sprintf("the port of %s is %d", v.On, want)
	if v.Port == 0 {
		return "the volume names no port; " + is
	}
	if owner, ok := p.owners[v.Port]; ok {
		return fmt.Sprintf("%s, and %d is that of %s", is, v.Port, owner)
	}
	return fmt.Sprintf("%s, and %d leads nowhere", is, v.Port)
}

// reportStray tells of volumes that cannot be corrected, because nothing is where they belong.
func (p *planner) reportStray(v Volume) {
	if err := v.On.check(); err != nil {
		p.tell(News{Kind: Conflict, Volume: v.Name, Message: "the volume's annotation is wrong: " + err.Error()})
		return
	}
	if owner, ok := p.owners[v.Port]; ok {
		p.tell(News{Kind: Conflict, FileSystem: v.On.FileSystem, Volume: v.Name, Message: fmt.Sprintf(
			"the volume's port %d is that of %s, and %s has none: pods must not use it", v.Port, owner, v.On)})
	}
}
