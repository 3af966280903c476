package terminator

import (
	"bytes"
	"context"
	"io"
	"net"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
)

// SetPlain has the mount target serve new clients without TLS, too, as Amazon EFS does where no policy of the file
// system forbids it.
func (t *Target) SetPlain(plain bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plain = plain
}

func (t *Target) servesPlain() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.plain
}

// tlsHandshake is the first byte of every client of TLS. A client of NFS begins with a record mark, whose highest bit
// is set.
const tlsHandshake = 22

// peeked is a client's connection of which the first byte was read.
type peeked struct {
	*net.TCPConn
	rest io.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.rest.Read(b) }

// peek returns the client's connection from its first byte on, and whether that byte is one of TLS. A client that
// sends nothing fails the handshake.
func (c *connection) peek() (client peeked, isTLS bool) {
	first := make([]byte, 1)
	n, err := c.tcp.Read(first)
	return peeked{c.tcp, io.MultiReader(bytes.NewReader(first[:n]), c.tcp)}, err != nil || first[0] == tlsHandshake
}

// servePlain forwards a client without TLS, which is nobody in particular, to the file system's root.
func (c *connection) servePlain(ctx context.Context, client peeked) {
	backend, err := c.dial(ctx, mountauth.Identity{})
	if err != nil {
		c.target.refuse(c, err)
		return
	}
	c.forward(client, backend)
}
