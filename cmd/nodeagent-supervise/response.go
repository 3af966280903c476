package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/textproto"
	"strings"
	"syscall"
	"time"
)

const (
	statusOK = "200 OK"
	// maxResponse bounds the output of the probe, of which the kubelet keeps 10 KiB.
	maxResponse = 8 << 10
)

type response struct {
	status string // code and reason phrase
	body   string
}

// get sends an HTTP/1.0 request to a unix socket. It does without net/http and its crypto/tls, which
// would double the size of this program and cost 2.6 MiB of memory on each node.
func get(ctx context.Context, socket, path string) (response, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return response{}, errNoSocket
	case errors.Is(err, syscall.ECONNREFUSED):
		return response{}, errNotListening
	case err != nil:
		return response{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // makes blocked reads and writes fail
	})()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		return response{}, err
	}
	return readResponse(io.LimitReader(conn, maxResponse))
}

var (
	errNoSocket     = errors.New("no such socket: the agent has not started, or has another STUNNEL_CONF_PATH")
	errNotListening = errors.New("no process listens on the socket: the agent has exited")
)

// readResponse reads until the server closes the connection, as it does after HTTP/1.0.
func readResponse(r io.Reader) (response, error) {
	reader := textproto.NewReader(bufio.NewReader(r))
	line, err := reader.ReadLine()
	if err != nil {
		return response{}, fmt.Errorf("reading the response: %w", err)
	}
	version, status, found := strings.Cut(line, " ")
	if !found || !strings.HasPrefix(version, "HTTP/1.") {
		return response{}, fmt.Errorf("response %q is not HTTP", line)
	}
	if _, err := reader.ReadMIMEHeader(); err != nil {
		return response{}, fmt.Errorf("reading the response: %w", err)
	}
	body, err := io.ReadAll(reader.R)
	if err != nil {
		return response{}, fmt.Errorf("reading the response: %w", err)
	}
	return response{status: status, body: string(body)}, nil
}
