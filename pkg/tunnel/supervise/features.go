package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

const (
	// askLimit bounds a question to a program that answers in some 10 ms.
	askLimit = 30 * time.Second
	// askAgain is between two questions to a program that was killed before it answered.
	askAgain = time.Second
	// mostWords bounds what is quoted of an answer.
	mostWords = 300
)

// usable has a stunnel program say what it understands, until it answers or the context ends. It
// returns an error for a program that can run no tunnel.
func usable(ctx context.Context, o Options) (stunnelcfg.Features, error) {
	for {
		features, err := Ask(ctx, o.Stunnel)
		if !errors.Is(err, errKilled) || ctx.Err() != nil {
			return features, err
		}
		o.Log.Warn("stunnel was killed before it answered; asking again", "err", err, "requeueAfter", askAgain)
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}

// Ask has a stunnel program say what it understands. The error has the words of one that lacks
// what every tunnel needs.
func Ask(ctx context.Context, path string) (stunnelcfg.Features, error) {
	version, err := output(ctx, path, "-version")
	if err != nil {
		return stunnelcfg.Features{}, err
	}
	help, err := output(ctx, path, "-help")
	if err != nil {
		return stunnelcfg.Features{}, err
	}
	features := stunnelcfg.ParseFeatures(version, help)
	if err := features.Check(); err != nil {
		return stunnelcfg.Features{}, fmt.Errorf("%s can run no tunnel: %w; it says: %s", path, err, oneLine(version))
	}
	return features, nil
}

// errKilled: the program took too long, or the node had no memory for it. Another time it may
// answer.
var errKilled = errors.New("it was killed before it answered")

// output leaves the exit code alone: versions differ in what they end such a question with.
func output(ctx context.Context, path, question string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, question)
	cmd.WaitDelay = outputGrace
	text, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil, wasKilled(cmd.ProcessState):
		return "", fmt.Errorf("asking %s %s: %w", path, question, errKilled)
	case cmd.ProcessState == nil || !cmd.ProcessState.Exited():
		return "", fmt.Errorf("asking %s %s: %w; it says: %s", path, question, err, oneLine(string(text)))
	}
	return string(text), nil
}

// wasKilled: this signal is the kernel's, which has no memory for the program.
func wasKilled(state *os.ProcessState) bool {
	if state == nil {
		return false
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// oneLine is the beginning of a text, for an error.
func oneLine(text string) string {
	words := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	return fmt.Sprintf("%.*q", mostWords, words)
}
