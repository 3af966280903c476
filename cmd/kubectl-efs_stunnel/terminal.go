package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// colorsOf colors what is written to a terminal, unless the user's environment says that it has no colors.
func colorsOf(out io.Writer) io.Writer {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return out
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return out
	}
	return colored{out}
}

// colored colors the levels at the beginning of lines. Objects have no control over it: their texts never
// begin a line with such a word.
type colored struct{ out io.Writer }

var painter = strings.NewReplacer(
	"\nPROBLEM ", "\n\x1b[1;31mPROBLEM\x1b[0m ", // bold red
	"\nUNKNOWN ", "\n\x1b[1;33mUNKNOWN\x1b[0m ", // bold yellow
	"\nNOTE ", "\n\x1b[1;36mNOTE\x1b[0m ", // bold cyan
)

// Write expects whole reports, which never begin with a result.
func (c colored) Write(text []byte) (int, error) {
	if _, err := painter.WriteString(c.out, string(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// quiet is the time in which no progress is printed.
const quiet = 2 * time.Second

// progress prints the present step of a command that takes longer than a user waits without a word.
type progress struct {
	out   io.Writer
	timer *time.Timer

	mu      sync.Mutex
	current string // guarded by mu
	late    bool   // guarded by mu
	ended   bool   // guarded by mu
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	p.timer = time.AfterFunc(quiet, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.late = true
		p.print()
	})
	return p
}

func (p *progress) step(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = text
	if p.late {
		p.print()
	}
}

func (p *progress) print() { // with mu
	if p.current != "" && !p.ended {
		fmt.Fprintln(p.out, p.current+" …")
	}
}

// stop may be called more than once.
func (p *progress) stop() {
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

const mostCompletions = 500

func (p *plugin) completeNamespaces(command *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.complete(command, prefix, func(ctx context.Context, c connection) (runtime.Object, error) {
		return c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: mostCompletions})
	})
}

// completeSubject completes kinds and file systems, and after a kind its names.
func (p *plugin) completeSubject(command *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return p.completeFileSystems(command, prefix, subjectKinds()...)
	case len(args) > 1:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case args[0] == "file-system":
		return p.completeFileSystems(command, prefix)
	}
	return p.complete(command, prefix, func(ctx context.Context, c connection) (runtime.Object, error) {
		core, options := c.client.CoreV1(), metav1.ListOptions{Limit: mostCompletions}
		switch args[0] {
		case "pvc":
			return core.PersistentVolumeClaims(p.namespace()).List(ctx, options)
		case "pod":
			return core.Pods(p.namespace()).List(ctx, options)
		case "sv":
			return c.dynamic.Resource(v1alpha1.SharedVolumes()).Namespace(p.namespace()).List(ctx, options)
		case "node":
			return core.Nodes().List(ctx, options)
		}
		return &corev1.NodeList{}, nil // nothing
	})
}

// completeFileSystems adds those of the table to other names.
func (p *plugin) completeFileSystems(command *cobra.Command, prefix string, names ...string) ([]cobra.Completion, cobra.ShellCompDirective) {
	namespaces := inspect.Namespaces()
	if p.system != "" {
		namespaces = []string{p.system}
	}
	c, err := p.connect(p.flags)
	for _, namespace := range namespaces {
		if err != nil {
			break
		}
		if object, err := c.client.CoreV1().ConfigMaps(namespace).Get(command.Context(), wellknown.TargetsConfigMap, metav1.GetOptions{}); err == nil {
			table, _, _ := ports.DecodeLenient([]byte(object.Data[wellknown.TargetsKey]))
			names = append(names, slices.Sorted(maps.Keys(table.Targets))...)
			break
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }), cobra.ShellCompDirectiveNoFileComp
}

// complete returns the names of a list that have the prefix, none if the list cannot be read.
func (p *plugin) complete(command *cobra.Command, prefix string, list func(context.Context, connection) (runtime.Object, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := p.connect(p.flags)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	objects, err := list(command.Context(), c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	_ = meta.EachListItem(objects, func(object runtime.Object) error {
		if accessor, err := meta.Accessor(object); err == nil && strings.HasPrefix(accessor.GetName(), prefix) {
			names = append(names, accessor.GetName())
		}
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
