// Command docs writes the tables of settings into docs/operations.md from the programs' --help. With
// -diff it changes nothing, and fails when the page is stale. Run it in the root of the repository with
// make generate or make verify.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

const page = "docs/operations.md"

// program is a program whose settings are on the page.
type program struct {
	title   string // in its markers
	folder  string
	command []string // before --help
	parse   func(help string) ([]group, error)
}

func programs() []program {
	return []program{
		{"manager", "cmd/manager", nil, parseLongHelp},
		{"nodeagent", "cmd/nodeagent", nil, parseLongHelp},
		{"nodeagent supervise", "cmd/nodeagent-supervise", nil, parseLongHelp},
		{"nodeagent-supervise probe", "cmd/nodeagent-supervise", []string{"probe"}, parseLongHelp},
		{"nodeagent-readahead", "cmd/nodeagent-readahead", nil, parseLongHelp},
		{"mountjob", "cmd/mountjob", []string{"run"}, parseShortHelp},
	}
}

func main() {
	diff := flag.Bool("diff", false, "change nothing, and fail when "+page+" is stale")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *diff); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		stop()
		os.Exit(1)
	}
}

var errStale = errors.New("stale: run make generate and commit what it changed")

func run(ctx context.Context, diff bool) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("reading the page (in the root of the repository?): %w", err)
	}
	fresh, err := generate(ctx, string(text))
	switch {
	case err != nil:
		return err
	case fresh == string(text):
		return nil
	case diff:
		return fmt.Errorf("%s is %w", page, errStale)
	}
	if err := os.WriteFile(page, []byte(fresh), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// generate is the page with the programs' current settings.
func generate(ctx context.Context, text string) (string, error) {
	built, err := os.MkdirTemp("", "docs")
	if err != nil {
		return "", fmt.Errorf("making a folder for the programs: %w", err)
	}
	defer os.RemoveAll(built) //nolint:errcheck // the system cleans its temporary folder
	for _, p := range programs() {
		help, err := p.help(ctx, built)
		if err != nil {
			return "", err
		}
		groups, err := p.parse(help)
		if err != nil {
			return "", fmt.Errorf("settings of %s: %w", p.title, err)
		}
		if text, err = replace(text, p.title, render(groups)); err != nil {
			return "", err
		}
	}
	return text, nil
}

// help is the output of the program's --help, without environment variables, which would be in it.
func (p program) help(ctx context.Context, built string) (string, error) {
	binary := filepath.Join(built, filepath.Base(p.folder))
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, "./"+p.folder)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building %s: %w", p.folder, err)
	}
	cmd := exec.CommandContext(ctx, binary, append(p.command, "--help")...)
	cmd.Env = []string{}
	help, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running %s --help: %w", p.title, err)
	}
	return outsideACluster(string(help)), nil
}

// outsideACluster restores the default namespace, because in a pod a program's default is the pod's
// namespace. CI may run in a pod.
func outsideACluster(help string) string {
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return help
	}
	return strings.ReplaceAll(help, "(default "+strings.TrimSpace(string(namespace))+")", "(default efs-stunnel)")
}
