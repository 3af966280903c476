package artifacts

import (
	"context"
	"io"
)

// NFSServer extracts the packages of the image efs-stunnel-nfsserver, and returns their folder: a root file
// system for tests of that server, and where hack/images/lab takes the image's files from.
func (m Maker) NFSServer(ctx context.Context, notes io.Writer) (string, error) {
	root, _, err := m.extracted(ctx, notes, "nfs-server-packages", latestSuite, []string{"base-files", "libgcc-s1", "nfs-ganesha", "nfs-ganesha-vfs", "stunnel4"})
	return root, err
}
