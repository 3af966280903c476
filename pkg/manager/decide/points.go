package decide

import (
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// point plans the access point of a volume whose directory is made, and reports whether the volume can be created, with
// it. For a claim that is gone, only the deletion of the volume follows, of which no access point is needed.
//
//	claim    access point     local port   what is done
//	exists   none             none         created
//	exists   cannot be made   none         reported; tries go on
//	exists   made             none         nothing: the table gives it one, or says why not
//	exists   made             given        the volume is created with it
//	gone     made             any          the volume is created with it
//	gone     may be made      none         nothing: it is listed
//	gone     none             none         the volume is created without it
func (p *claimPlanner) point(want volumes.Point, creation *CreateVolume) (ready bool) {
	id, problem := p.Points.Made(want.Volume)
	if p.Claim == nil && id == "" {
		return p.Points.GiveUp(want)
	}
	tunnel := p.Targets.Tunnels[ports.Key{FileSystem: want.FileSystemID, AccessPoint: id}]
	creation.AccessPointID, creation.PointPort, creation.IAM = id, tunnel.Port, want.IAM
	p.progress = Verdict{status.PointIsMade, fmt.Sprintf("the access point of directory %s is made", want.Path)}
	switch {
	case p.Claim == nil:
		return true
	case id == "":
		p.add(CreatePoint{want})
	case tunnel.Port == 0 && tunnel.Problem != "":
		problem = Verdict{status.WaitsForFileSystem, tunnel.Problem}
	case tunnel.Port == 0:
		p.progress.Message = fmt.Sprintf("access point %s gets a local port", id)
	}
	if problem != (Verdict{}) {
		p.reportWait(problem.Cause, problem.Message)
	}
	return tunnel.Port != 0
}

// isPointDeleted plans the deletion of the access point of a volume whose directory is dealt with, and reports whether
// none is left: until then, the volume is what the access point is known from.
func (p *volumePlanner) isPointDeleted() bool {
	v := p.volume
	if v.AccessPointID == "" || v.PointShared {
		return true
	}
	deleted, problem := p.Points.Deleted(v.AccessPointID)
	if deleted {
		if problem != (Verdict{}) {
			p.add(Warn{v.Object, wellknown.EventVolumeDeleteSkipped, "", "volume deleted: " + problem.Message, ""})
		}
		return true
	}
	p.add(DeletePoint{volumes.Point{Volume: v.Name, FileSystemID: v.FileSystemID, Path: v.Path}, v.AccessPointID})
	if problem != (Verdict{}) {
		p.warn(problem.Cause, "access point", problem.Message)
	}
	p.inJob = problem == Verdict{}
	return false
}

// checkPoint reports that pods cannot reach the volume's directory any more, although it is there.
func (p *volumePlanner) checkPoint() {
	if v := p.volume; v.AccessPointID != "" && p.Points.IsMissing(v.FileSystemID, v.AccessPointID) {
		p.warn(status.AccessPointMissing, "access point", fmt.Sprintf("access point %s of file system %s was deleted in AWS, so that pods cannot mount the volume: "+
			"the data is in %s; make a volume of that directory", v.AccessPointID, v.FileSystemID, v.Path))
		p.Unsettled = true
	}
}
