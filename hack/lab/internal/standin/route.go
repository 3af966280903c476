package standin

import (
	"errors"
	"fmt"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

// route finds the NFS server that a client of a file system's mount target
// asks for with its certificate.
func (d *daemon) route(fileSystemID string, id terminator.Identity) (string, error) {
	if id.FileSystemID != "" && id.FileSystemID != fileSystemID {
		return "", fmt.Errorf("the client's certificate is for file system %s, the mount target of %s", id.FileSystemID, fileSystemID)
	}
	export := fileSystemID
	if id.AccessPointID != "" {
		if err := d.admits(fileSystemID, id.AccessPointID); err != nil {
			return "", fmt.Errorf("access point %s: %w", id.AccessPointID, err)
		}
		export = id.AccessPointID
	}
	address, ok := d.servers.Address(export)
	if !ok {
		return "", fmt.Errorf("no NFS server runs for %s", export)
	}
	return address, nil
}

func (d *daemon) admits(fileSystemID, accessPointID string) error {
	p, ok := d.world.Snapshot().AccessPoints[accessPointID]
	switch {
	case !ok:
		return errors.New("does not exist")
	case p.FileSystemID != fileSystemID:
		return fmt.Errorf("is of file system %s, the mount target of %s", p.FileSystemID, fileSystemID)
	case p.State != world.Available:
		return fmt.Errorf("is in state %s", p.State)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unserved[accessPointID]
}
