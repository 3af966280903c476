package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

// Client talks to a running stand-in.
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

// Ready is nil once every mount target listens and every NFS server answers.
func (c *Client) Ready(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/ready", nil, nil)
}

// World is everything that exists.
func (c *Client) World(ctx context.Context) (world.World, error) {
	var w world.World
	err := c.call(ctx, http.MethodGet, "/world", nil, &w)
	return w, err
}

// Status tells what the stand-in is doing.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/status", nil, &s)
	return s, err
}

// CreateFileSystem adds a file system; it is served when this returns.
func (c *Client) CreateFileSystem(ctx context.Context, r world.NewFileSystem) (world.FileSystem, error) {
	var fs world.FileSystem
	err := c.call(ctx, http.MethodPost, "/file-systems", r, &fs)
	return fs, err
}

// UpdateFileSystem changes a file system.
func (c *Client) UpdateFileSystem(ctx context.Context, id string, change world.FileSystemChange) error {
	return c.call(ctx, http.MethodPatch, "/file-systems/"+url.PathEscape(id), change, nil)
}

// DeleteFileSystem removes a file system and its files; cascade removes its
// mount targets too.
func (c *Client) DeleteFileSystem(ctx context.Context, id string, cascade bool) error {
	return c.call(ctx, http.MethodDelete, fmt.Sprintf("/file-systems/%s?cascade=%t", url.PathEscape(id), cascade), nil, nil)
}

// CreateMountTarget gives a file system an address; it serves when this returns.
func (c *Client) CreateMountTarget(ctx context.Context, r world.NewMountTarget) (world.MountTarget, error) {
	var t world.MountTarget
	err := c.call(ctx, http.MethodPost, "/mount-targets", r, &t)
	return t, err
}

// UpdateMountTarget changes a mount target.
func (c *Client) UpdateMountTarget(ctx context.Context, id string, change MountTargetChange) error {
	return c.call(ctx, http.MethodPatch, "/mount-targets/"+url.PathEscape(id), change, nil)
}

// DeleteMountTarget removes a mount target and its address.
func (c *Client) DeleteMountTarget(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/mount-targets/"+url.PathEscape(id), nil, nil)
}

// CreateAccessPoint adds an access point; it is served when this returns.
func (c *Client) CreateAccessPoint(ctx context.Context, r world.NewAccessPoint) (world.AccessPoint, error) {
	var p world.AccessPoint
	err := c.call(ctx, http.MethodPost, "/access-points", r, &p)
	return p, err
}

// UpdateAccessPoint changes an access point.
func (c *Client) UpdateAccessPoint(ctx context.Context, id string, change AccessPointChange) error {
	return c.call(ctx, http.MethodPatch, "/access-points/"+url.PathEscape(id), change, nil)
}

// DeleteAccessPoint removes an access point; its files stay.
func (c *Client) DeleteAccessPoint(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/access-points/"+url.PathEscape(id), nil, nil)
}

// PutNode adds or replaces a node, whose requests for metadata are answered then.
func (c *Client) PutNode(ctx context.Context, n world.Node) error {
	return c.call(ctx, http.MethodPut, "/nodes/"+url.PathEscape(n.Name), n, nil)
}

// DeleteNode forgets a node; one that is not known is fine.
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/nodes/"+url.PathEscape(name), nil, nil)
}

// SetFault makes the API misbehave.
func (c *Client) SetFault(ctx context.Context, f efsapi.Fault) error {
	return c.call(ctx, http.MethodPut, "/faults", f, nil)
}

// ClearFaults ends the API's faults and brings all mount targets back to mode
// ok with good certificates.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/faults", nil, nil)
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var content io.Reader = http.NoBody
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("asking the EFS stand-in: %w", err)
		}
		content = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://standin"+path, content)
	if err != nil {
		return fmt.Errorf("asking the EFS stand-in: %w", err)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("asking the EFS stand-in at %s, is the lab up?: %w", c.socket, err)
	}
	defer answer.Body.Close()
	if err := read(answer, out); err != nil {
		return fmt.Errorf("EFS stand-in: %w", err)
	}
	return nil
}

func read(answer *http.Response, out any) error {
	if answer.StatusCode != http.StatusOK {
		var f failure
		if err := json.NewDecoder(answer.Body).Decode(&f); err != nil {
			return fmt.Errorf("answered %s", answer.Status)
		}
		return errors.New(f.Error)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer.Body).Decode(out); err != nil {
		return fmt.Errorf("reading its answer: %w", err)
	}
	return nil
}
