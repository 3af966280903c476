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
	// maxAnswer bounds what is handed on to kubelet, which keeps 10 KiB.
	maxAnswer = 8 << 10
)

// answer is what a server said.
type answer struct {
	status string // code and text
	body   string
}

// get asks a server on a socket, by HTTP/1.0 without net/http: that and its TLS would make this
// program twice as large, and take 2.6 MiB more of every node for good.
func get(ctx context.Context, socket, path string) (answer, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return answer{}, errNoSocket
	case errors.Is(err, syscall.ECONNREFUSED):
		return answer{}, errNobody
	case err != nil:
		return answer{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // what waits fails, and says so
	})()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		return answer{}, err
	}
	return readAnswer(io.LimitReader(conn, maxAnswer))
}

var (
	errNoSocket = errors.New("there is no such socket: the agent does not run yet, or with another STUNNEL_CONF_PATH")
	errNobody   = errors.New("nobody listens there: the agent has ended")
)

// readAnswer reads to the end, as servers close what came by HTTP/1.0.
func readAnswer(r io.Reader) (answer, error) {
	reader := textproto.NewReader(bufio.NewReader(r))
	line, err := reader.ReadLine()
	if err != nil {
		return answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	version, status, found := strings.Cut(line, " ")
	if !found || !strings.HasPrefix(version, "HTTP/1.") {
		return answer{}, fmt.Errorf("answer %q, which is no HTTP", line)
	}
	if _, err := reader.ReadMIMEHeader(); err != nil {
		return answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	body, err := io.ReadAll(reader.R)
	if err != nil {
		return answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	return answer{status: status, body: string(body)}, nil
}
