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

// maxResponse bounds the output of the probe, of which the kubelet keeps 10 KiB.
const maxResponse = 8 << 10

// get sends an HTTP/1.0 request to a unix socket, and returns code and reason phrase of the response
// in status. It does without net/http and its crypto/tls, which would double the size of this program
// and cost 2.6 MiB of memory on each node.
func get(ctx context.Context, socket, path string) (status, body string, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "", errors.New("no such socket: the agent has not started, or has another STUNNEL_CONF_PATH")
	case errors.Is(err, syscall.ECONNREFUSED):
		return "", "", errors.New("no process listens on the socket: the agent has exited")
	case err != nil:
		return "", "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // makes blocked reads and writes fail
	})()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		return "", "", err
	}
	status, body, err = readResponse(io.LimitReader(conn, maxResponse))
	if err != nil {
		return "", "", fmt.Errorf("reading the response: %w", err)
	}
	return status, body, nil
}

// readResponse reads until the server closes the connection, as it does after HTTP/1.0.
func readResponse(r io.Reader) (status, body string, err error) {
	reader := textproto.NewReader(bufio.NewReader(r))
	line, err := reader.ReadLine()
	if err != nil {
		return "", "", err
	}
	version, status, found := strings.Cut(line, " ")
	if !found || !strings.HasPrefix(version, "HTTP/1.") {
		return "", "", fmt.Errorf("%q is not HTTP", line)
	}
	if _, err := reader.ReadMIMEHeader(); err != nil {
		return "", "", err
	}
	text, err := io.ReadAll(reader.R)
	return status, string(text), err
}
