// Command docs writes what the code knows into docs: the settings of the programs, from their --help, the keys of
// annotations, labels and finalizers, from their constants, conditions with their reasons, from package status, the
// reasons of events, tunnels and targets, from their constants, parameters of classes, from their tables, the alerts, from
// their manifest, metrics, from their source, and the pictures, from their texts. With -diff it changes nothing, and fails
// when a file is stale. Run it in the root of the repository with make generate or make verify.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

const (
	managerPage = "docs/reference/settings-manager.md"
	nodePage    = "docs/reference/settings-node.md"
	serverPage  = "docs/reference/nfs-server.md"
	jobPage     = "docs/reference/mount-jobs.md"
	namesPage   = "docs/reference/annotations.md"
	namesFolder = "pkg/api/wellknown"
	pictures    = "docs/concepts/*.txt"
)

// program is a program whose settings are on a page.
type program struct {
	page    string
	title   string // in its markers
	folder  string
	command []string // before --help
	parse   func(help string) ([]group, error)
}

func programs() []program {
	return []program{
		{managerPage, "manager", "cmd/manager", nil, parseLongHelp},
		{managerPage, "manager certificates", "cmd/manager", []string{"certificates"}, parseLongHelp},
		{nodePage, "nodeagent", "cmd/nodeagent", nil, parseLongHelp},
		{nodePage, "nodeagent supervise", "cmd/nodeagent-supervise", nil, parseLongHelp},
		{nodePage, "nodeagent-supervise probe", "cmd/nodeagent-supervise", []string{"probe"}, parseLongHelp},
		{nodePage, "nodeagent-readahead", "cmd/nodeagent-readahead", nil, parseLongHelp},
		{serverPage, "nfsserver", "cmd/nfsserver", nil, parseLongHelp},
		{jobPage, "mountjob", "cmd/mountjob", []string{"run"}, parseShortHelp},
	}
}

func main() {
	diff := flag.Bool("diff", false, "change nothing, and fail when a file is stale")
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
	fresh := map[string]string{}
	if err := errors.Join(addSettings(ctx, fresh), addSources(fresh)); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(fresh)) {
		if err := update(path, fresh[path], diff); err != nil {
			return err
		}
	}
	return nil
}

// addSources writes what follows from files of the repository, without a program that has to be built.
func addSources(fresh map[string]string) error {
	return errors.Join(addNames(fresh), addParameters(fresh), addConditions(fresh), addReasons(fresh), addAlerts(fresh), addMetrics(fresh), addPictures(fresh))
}

// update writes a file that differs, or says that it does.
func update(path, fresh string, diff bool) error {
	text, err := os.ReadFile(path)
	switch {
	case err == nil && string(text) == fresh:
		return nil
	case diff:
		return fmt.Errorf("%s is %w", path, errStale)
	}
	if err := os.WriteFile(path, []byte(fresh), 0o644); err != nil {
		return fmt.Errorf("writing a page: %w", err)
	}
	return nil
}

// insert replaces a marked part of a page.
func insert(fresh map[string]string, page, title, part string) error {
	if _, ok := fresh[page]; !ok {
		text, err := os.ReadFile(page)
		if err != nil {
			return fmt.Errorf("reading a page (in the root of the repository?): %w", err)
		}
		fresh[page] = string(text)
	}
	text, err := replace(fresh[page], title, part)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	fresh[page] = text
	return nil
}

func addSettings(ctx context.Context, fresh map[string]string) error {
	built, err := os.MkdirTemp("", "docs")
	if err != nil {
		return fmt.Errorf("making a folder for the programs: %w", err)
	}
	defer os.RemoveAll(built) //nolint:errcheck // the system cleans its temporary folder
	for _, p := range programs() {
		help, err := p.help(ctx, built)
		if err != nil {
			return err
		}
		groups, err := p.parse(help)
		if err != nil {
			return fmt.Errorf("settings of %s: %w", p.title, err)
		}
		if err := insert(fresh, p.page, "settings of "+p.title, render(groups)); err != nil {
			return err
		}
	}
	return nil
}

func addNames(fresh map[string]string) error {
	all, err := constants(namesFolder)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := insert(fresh, namesPage, kind, renderNames(all, kind)); err != nil {
			return err
		}
	}
	return nil
}

func addPictures(fresh map[string]string) error {
	sources, err := filepath.Glob(pictures)
	if err != nil {
		return fmt.Errorf("listing the pictures: %w", err)
	}
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a picture: %w", err)
		}
		drawing, err := draw(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		fresh[strings.TrimSuffix(path, ".txt")+".svg"] = drawing
	}
	return nil
}

// help returns the output of the program's --help, without environment variables, which would be in it.
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
