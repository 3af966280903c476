package main

import (
	"context"
	"maps"
	"slices"
	"strings"

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

// mostCompletions limits the objects that are listed for a completion.
const mostCompletions = 500

func (p *plugin) completeNamespaces(command *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.complete(command, prefix, func(ctx context.Context, c connection) (runtime.Object, error) {
		return c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: mostCompletions})
	})
}

// completeSubject completes kinds and file systems, and after a kind its names.
func (p *plugin) completeSubject(command *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	list := func(context.Context, connection) (runtime.Object, error) { return &corev1.NodeList{}, nil } // nothing
	switch {
	case len(args) == 0:
		return p.completeFileSystems(command, prefix, subjectKinds()...)
	case len(args) == 1 && args[0] == "file-system":
		return p.completeFileSystems(command, prefix)
	case len(args) == 1 && args[0] == "pvc":
		list = func(ctx context.Context, c connection) (runtime.Object, error) {
			return c.client.CoreV1().PersistentVolumeClaims(p.namespace()).List(ctx, metav1.ListOptions{Limit: mostCompletions})
		}
	case len(args) == 1 && args[0] == "pod":
		list = func(ctx context.Context, c connection) (runtime.Object, error) {
			return c.client.CoreV1().Pods(p.namespace()).List(ctx, metav1.ListOptions{Limit: mostCompletions})
		}
	case len(args) == 1 && args[0] == "sv":
		list = func(ctx context.Context, c connection) (runtime.Object, error) {
			return c.dynamic.Resource(v1alpha1.SharedVolumes()).Namespace(p.namespace()).List(ctx, metav1.ListOptions{Limit: mostCompletions})
		}
	case len(args) == 1 && args[0] == "node":
		list = func(ctx context.Context, c connection) (runtime.Object, error) {
			return c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: mostCompletions})
		}
	}
	return p.complete(command, prefix, list)
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
