package supervise

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// askLimit bounds a question to a program that answers in some 10 ms.
const askLimit = 30 * time.Second

// Ask has a stunnel program say what it understands.
func Ask(ctx context.Context, path string) (stunnelcfg.Features, error) {
	version, err := output(ctx, path, "-version")
	if err != nil {
		return stunnelcfg.Features{}, err
	}
	help, err := output(ctx, path, "-help")
	if err != nil {
		return stunnelcfg.Features{}, err
	}
	return stunnelcfg.ParseFeatures(version, help), nil
}

// output leaves the exit code alone: versions differ in what they end such a question with.
func output(ctx context.Context, path, question string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, question)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || !cmd.ProcessState.Exited() {
		return "", fmt.Errorf("asking %s %s: %w", path, question, err)
	}
	return string(text), nil
}
