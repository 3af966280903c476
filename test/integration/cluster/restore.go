package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Backup copies the data of etcd, which is down meanwhile, and with it the apiserver.
func (c *Cluster) Backup(ctx context.Context) (folder string, err error) {
	if folder, err = os.MkdirTemp(c.folder, "backup-"); err != nil {
		return "", fmt.Errorf("making a folder: %w", err)
	}
	return folder, c.whileDown(ctx, func() error { return os.CopyFS(folder, os.DirFS(c.data())) })
}

// Restore has etcd begin again with what a Backup has.
func (c *Cluster) Restore(ctx context.Context, folder string) error {
	return c.whileDown(ctx, func() error {
		if err := os.RemoveAll(c.data()); err != nil {
			return err
		}
		return os.CopyFS(c.data(), os.DirFS(folder))
	})
}

func (c *Cluster) data() string { return filepath.Join(c.folder, "etcd") }

func (c *Cluster) whileDown(ctx context.Context, do func() error) (err error) {
	c.apiServer.stop()
	c.etcd.stop()
	if err := do(); err != nil {
		return fmt.Errorf("copying the data of etcd: %w", err)
	}
	if c.etcd, err = startProcess(c.etcdProgram()); err != nil {
		return err
	}
	if c.apiServer, err = startProcess(c.apiServerProgram()); err != nil {
		return err
	}
	return c.waitForAPIServer(ctx)
}
