package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

// Client sends requests to a running stand-in.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient makes a client of the stand-in that listens on a socket.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket, &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Ready returns nil once every mount target listens and every NFS server answers.
func (c *Client) Ready(ctx context.Context) error { return c.do(ctx, http.MethodGet, "/ready", none{}) }

// Inventory returns all resources.
func (c *Client) Inventory(ctx context.Context) (inventory.Snapshot, error) {
	return call[inventory.Snapshot](ctx, c, http.MethodGet, "/inventory", none{})
}

// Status reports what the stand-in is doing.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, http.MethodGet, "/status", none{})
}

// CreateFileSystem adds a file system. It is served when this returns.
func (c *Client) CreateFileSystem(ctx context.Context, r inventory.NewFileSystem) (inventory.FileSystem, error) {
	return call[inventory.FileSystem](ctx, c, http.MethodPost, "/file-systems", r)
}

// UpdateFileSystem changes a file system.
func (c *Client) UpdateFileSystem(ctx context.Context, id string, change inventory.FileSystemChange) error {
	return c.do(ctx, http.MethodPatch, "/file-systems/"+id, change)
}

// DeleteFileSystem removes a file system and its files. Cascade removes its mount targets, too.
func (c *Client) DeleteFileSystem(ctx context.Context, id string, cascade bool) error {
	return c.do(ctx, http.MethodDelete, "/file-systems/"+id, deletion{cascade})
}

// CreateMountTarget gives a file system an address. It is served when this returns.
func (c *Client) CreateMountTarget(ctx context.Context, r inventory.NewMountTarget) (inventory.MountTarget, error) {
	return call[inventory.MountTarget](ctx, c, http.MethodPost, "/mount-targets", r)
}

// UpdateMountTarget changes a mount target.
func (c *Client) UpdateMountTarget(ctx context.Context, id string, change MountTargetChange) error {
	return c.do(ctx, http.MethodPatch, "/mount-targets/"+id, change)
}

// DeleteMountTarget removes a mount target and its address.
func (c *Client) DeleteMountTarget(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/mount-targets/"+id, none{})
}

// CreateAccessPoint adds an access point. It is served when this returns.
func (c *Client) CreateAccessPoint(ctx context.Context, r inventory.NewAccessPoint) (inventory.AccessPoint, error) {
	return call[inventory.AccessPoint](ctx, c, http.MethodPost, "/access-points", r)
}

// SetAccessPointState changes an access point's life-cycle state.
func (c *Client) SetAccessPointState(ctx context.Context, id string, state inventory.State) error {
	return c.do(ctx, http.MethodPatch, "/access-points/"+id, state)
}

// DeleteAccessPoint removes an access point. Its files stay.
func (c *Client) DeleteAccessPoint(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/access-points/"+id, none{})
}

// PutNode adds or replaces a node. From then on its requests for metadata are answered.
func (c *Client) PutNode(ctx context.Context, n inventory.Node) error {
	return c.do(ctx, http.MethodPut, "/nodes/"+n.Name, n)
}

// DeleteNode removes a node. Removing one that does not exist is no error.
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/nodes/"+name, none{})
}

// SetFault makes the API fail.
func (c *Client) SetFault(ctx context.Context, f efsapi.Fault) error {
	return c.do(ctx, http.MethodPut, "/faults", f)
}

// ClearFaults ends the API's faults, and sets all mount targets to mode ok with valid certificates and
// without a delay.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/faults", none{})
}

func (c *Client) do(ctx context.Context, method, path string, in any) error {
	_, err := call[none](ctx, c, method, path, in)
	return err
}

func call[Out any](ctx context.Context, c *Client, method, path string, in any) (Out, error) {
	var out Out
	body, err := json.Marshal(in)
	if err != nil {
		return out, fmt.Errorf("encoding a request to the EFS stand-in: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, (&url.URL{Scheme: "http", Host: "standin", Path: path}).String(), bytes.NewReader(body))
	if err != nil {
		return out, fmt.Errorf("making a request to the EFS stand-in: %w", err)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return out, fmt.Errorf("calling the EFS stand-in at %s, is the lab up?: %w", c.socket, err)
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	if response.StatusCode != http.StatusOK {
		var f failure
		if err := decoder.Decode(&f); err != nil {
			return out, fmt.Errorf("EFS stand-in responded %s", response.Status)
		}
		return out, fmt.Errorf("EFS stand-in: %w", errors.New(f.Error))
	}
	if err := decoder.Decode(&out); err != nil {
		return out, fmt.Errorf("decoding the EFS stand-in's response: %w", err)
	}
	return out, nil
}
