package standin

import (
	"fmt"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
)

// route finds the NFS server for a client of a file system's mount target by the client's identity,
// or refuses the client, as IAM and access points do in EFS.
func (d *daemon) route(fileSystemID string, id mountauth.Identity) (string, error) {
	snapshot := d.inventory.Snapshot()
	if snapshot.FileSystems[fileSystemID].RequireIAM && id.AccessKeyID == "" {
		return "", mountauth.Refuse(mountauth.IAMMissing, "file system %s requires an IAM signature", fileSystemID)
	}
	export := fileSystemID
	if id.AccessPointID != "" {
		if err := d.checkAccessPoint(snapshot, fileSystemID, id.AccessPointID); err != nil {
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

func (d *daemon) checkAccessPoint(snapshot inventory.Snapshot, fileSystemID, accessPointID string) error {
	p, ok := snapshot.AccessPoints[accessPointID]
	switch {
	case !ok:
		return mountauth.Refuse(mountauth.AccessPoint, "%s does not exist", accessPointID)
	case p.FileSystemID != fileSystemID:
		return mountauth.Refuse(mountauth.AccessPoint, "%s belongs to file system %s, the mount target to %s", accessPointID, p.FileSystemID, fileSystemID)
	case p.State != inventory.Available:
		return mountauth.Refuse(mountauth.AccessPoint, "%s is in state %s", accessPointID, p.State)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.unserved[accessPointID]; err != nil {
		return mountauth.Refuse(mountauth.AccessPoint, "%s: %v", accessPointID, err)
	}
	return nil
}
