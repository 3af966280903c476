package standin

import (
	"fmt"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

// route finds the NFS server that a client of a file system's mount target asks
// for with its certificate, if it may have it: it does what IAM and access
// points do in EFS.
func (d *daemon) route(fileSystemID string, id mountauth.Identity) (string, error) {
	w := d.world.Snapshot()
	if w.FileSystems[fileSystemID].RequireIAM && id.AccessKeyID == "" {
		return "", mountauth.Refuse(mountauth.IAMMissing, "file system %s requires an IAM signature", fileSystemID)
	}
	export := fileSystemID
	if id.AccessPointID != "" {
		if err := d.admits(w, fileSystemID, id.AccessPointID); err != nil {
			return "", err
		}
		export = id.AccessPointID
	}
	address, ok := d.servers.Address(export)
	if !ok {
		return "", fmt.Errorf("no NFS server runs for %s", export)
	}
	return address, nil
}

func (d *daemon) admits(w world.World, fileSystemID, accessPointID string) error {
	p, ok := w.AccessPoints[accessPointID]
	switch {
	case !ok:
		return mountauth.Refuse(mountauth.AccessPoint, "%s does not exist", accessPointID)
	case p.FileSystemID != fileSystemID:
		return mountauth.Refuse(mountauth.AccessPoint, "%s is of file system %s, the mount target of %s", accessPointID, p.FileSystemID, fileSystemID)
	case p.State != world.Available:
		return mountauth.Refuse(mountauth.AccessPoint, "%s is in state %s", accessPointID, p.State)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.unserved[accessPointID]; err != nil {
		return mountauth.Refuse(mountauth.AccessPoint, "%s: %v", accessPointID, err)
	}
	return nil
}
