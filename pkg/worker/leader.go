package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

const (
	// After reachTime without its leader the worker ends: claims wait for the end of its Job.
	reachTime    = time.Second
	reachRetry   = 100 * time.Millisecond
	connectTime  = 800 * time.Millisecond
	responseTime = 2 * operations.LongestPoll
)

// leader is the client of the manager that has created the Job.
type leader struct {
	client *http.Client
	url    string
	token  string // file
}

// newLeader makes the client. It trusts one key alone, so names and certificate authorities do not matter.
func newLeader(o options) *leader {
	return &leader{
		url: "https://" + o.leader + operations.PollPath, token: o.leaderToken,
		client: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				DialContext:           (&net.Dialer{Timeout: connectTime}).DialContext,
				TLSHandshakeTimeout:   connectTime,
				ResponseHeaderTimeout: responseTime,
				MaxConnsPerHost:       1,
				TLSClientConfig: &tls.Config{
					MinVersion:         tls.VersionTLS13,
					InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares the key
					VerifyConnection:   func(state tls.ConnectionState) error { return checkKey(state, o.leaderKey) },
				},
			},
		},
	}
}

func checkKey(state tls.ConnectionState, want string) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server has no certificate")
	}
	key := sha256.Sum256(state.PeerCertificates[0].RawSubjectPublicKeyInfo)
	if hex.EncodeToString(key[:]) != want {
		return errors.New("the server has another key than the leader that created the Job")
	}
	return nil
}

// errUnreachable is that of a leader that may answer when it is asked again.
var errUnreachable = errors.New("the leader cannot be reached")

// next reports a batch, and waits for the next one until the context ends. The error says why there is none.
func (l *leader) next(ctx context.Context, report operations.Report) (operations.Batch, error) {
	message := report.Encode()
	unreached := time.Now() // since when the leader has not answered; zero while it does
	for {
		batch, err := l.poll(ctx, message)
		switch {
		case ctx.Err() != nil:
			return operations.Batch{}, fmt.Errorf("waiting for more operations: %w", context.Cause(ctx))
		case err == nil && batch.Number == report.Batch+1:
			return batch, nil
		case err == nil && batch.Number != 0:
			return operations.Batch{}, fmt.Errorf("the leader sent batch %d after batch %d", batch.Number, report.Batch)
		case err == nil: // the leader has the report, and needs only its number
			unreached, message = time.Time{}, operations.Report{Batch: report.Batch}.Encode()
			continue
		case !errors.Is(err, errUnreachable), !unreached.IsZero() && time.Since(unreached) > reachTime:
			return operations.Batch{}, err
		case unreached.IsZero():
			unreached = time.Now()
		}
		loop.Pause(ctx, reachRetry)
	}
}

// poll asks once. The zero Batch says that there is none yet.
func (l *leader) poll(ctx context.Context, report []byte) (operations.Batch, error) {
	token, err := os.ReadFile(l.token)
	if err != nil {
		return operations.Batch{}, fmt.Errorf("reading the token for the leader: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(report))
	if err != nil {
		return operations.Batch{}, fmt.Errorf("asking the leader: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := l.client.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) { // another process at its address would not have its key
		return operations.Batch{}, fmt.Errorf("the leader has ended: %w", err)
	}
	if err != nil {
		return operations.Batch{}, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, operations.MaxBatchBytes+1))
	if err != nil {
		return operations.Batch{}, fmt.Errorf("%w: reading its answer: %w", errUnreachable, err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		return operations.DecodeBatch(data)
	case http.StatusNoContent:
		return operations.Batch{}, nil
	case http.StatusServiceUnavailable:
		return operations.Batch{}, fmt.Errorf("%w: %s", errUnreachable, firstLine(data))
	}
	return operations.Batch{}, fmt.Errorf("the leader refused: %s: %s", response.Status, firstLine(data))
}

func firstLine(data []byte) string {
	line, _, _ := strings.Cut(string(data[:min(len(data), 256)]), "\n")
	return strings.ToValidUTF8(line, "?")
}

// lingerTime leaves time for a batch: one that begins in the last half of the Job's time is for another Job.
func (j job) lingerTime(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if j.options.leader == "" || !ok {
		return 0
	}
	return min(j.options.linger, time.Until(deadline)-j.options.timeLimit()/2)
}

// nextBatch reports a batch to the leader, and waits for the next one, if there is one.
func (j job) nextBatch(ctx context.Context, report operations.Report) (batch operations.Batch, ok bool) {
	linger := j.lingerTime(ctx)
	if linger <= 0 {
		return operations.Batch{}, false
	}
	ctx, cancel := context.WithTimeoutCause(ctx, linger, errNoMore)
	defer cancel()
	batch, err := j.leader.next(ctx, report)
	if errors.Is(err, errNoMore) {
		j.log.Info("worker ended: there was nothing more to do", "duration", linger.String())
		return batch, false
	}
	if err != nil {
		j.log.Info("worker ended: the next Job has what is left to do", "err", err)
	}
	return batch, err == nil
}

// errNoMore is the cause when the worker has waited for long enough.
var errNoMore = errors.New("no operation came")

func (o options) checkLeader() error {
	if o.leader == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.leader); err != nil {
		return fmt.Errorf("--leader %q: want host:port: %w", o.leader, err)
	}
	if key, err := hex.DecodeString(o.leaderKey); err != nil || len(key) != sha256.Size {
		return fmt.Errorf("--leader-key %q: want a SHA-256 in hex", o.leaderKey)
	}
	if o.leaderToken == "" || o.linger <= 0 {
		return fmt.Errorf("--leader needs --leader-token, and a --linger above 0s: want such as %s", wellknown.DefaultWorkerLinger)
	}
	return nil
}
