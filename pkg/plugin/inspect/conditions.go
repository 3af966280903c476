package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// DefinitionsMissing is the cause of a note that the cluster lacks the definitions of objects with conditions.
const DefinitionsMissing Cause = "DefinitionsMissing"

// tunnelResource is that of the objects that say how tunnels are.
const tunnelResource = v1alpha1.NodeTunnelsResource + "." + v1alpha1.GroupName

// conditions reads the objects that manager and agents write.
func (g *gatherer) conditions(ctx context.Context) error {
	if g.options.Dynamic == nil {
		return nil
	}
	s := g.snapshot
	err := cmp.Or(
		listShown(ctx, g, v1alpha1.FileSystems(), func(o *v1alpha1.FileSystem) {
			if o.Labels[wellknown.LabelInstallation] == s.Namespace {
				s.FileSystemObjects = append(s.FileSystemObjects, o)
			}
		}),
		listShown(ctx, g, v1alpha1.NodeTunnelsObjects(), func(o *v1alpha1.NodeTunnels) { s.NodeTunnels = append(s.NodeTunnels, o) }),
		listShown(ctx, g, v1alpha1.Installations(), func(o *v1alpha1.Installation) {
			if o.Name == s.Namespace {
				s.Installation = o
			}
		}))
	return err
}

// listShown keeps each object as it is, too.
func listShown[T any](ctx context.Context, g *gatherer, resource schema.GroupVersionResource, add func(*T)) error {
	var failed error
	read := func(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
		all, err := g.options.Dynamic.Resource(resource).List(ctx, o)
		g.snapshot.Undefined = g.snapshot.Undefined || apierrors.IsNotFound(err)
		return all, err
	}
	err := list(ctx, g, Unread{Resource: resource.GroupResource().String()}, "", read, func(object runtime.Object) {
		item, ok := object.(*unstructured.Unstructured)
		if !ok {
			return
		}
		typed, err := v1alpha1.Read[T](item)
		if failed = cmp.Or(failed, err); err == nil {
			g.snapshot.Conditions = append(g.snapshot.Conditions, item)
			add(typed)
		}
	})
	return cmp.Or(err, failed)
}

// ofCondition says what a condition of an object says, if it is False.
func (f *facts) ofCondition(object string, c metav1.Condition) []Result {
	if c.Status != metav1.ConditionFalse {
		return nil
	}
	return []Result{problem(Cause(c.Reason), object, f.lasting(c.Message, c.LastTransitionTime.Time), status.Remedy(c.Reason))}
}

func (f *facts) lasting(message string, since time.Time) string {
	return fmt.Sprintf("%s (for %s)", message, age(f.Now, since))
}

// checkInstallation reads what the leader says of the whole installation. What is wrong with a ConfigMap,
// the ConfigMap itself shows.
func (f *facts) checkInstallation() (results []Result) {
	if f.Installation == nil {
		return nil
	}
	for _, c := range f.Installation.Status.Conditions {
		if c.Reason != wellknown.EventTableUnreadable {
			results = append(results, f.ofCondition("installation "+f.Installation.Name, c)...)
		}
	}
	return results
}

func (f *facts) conditionsOfFileSystem(id string) (results []Result) {
	object := f.shown[id]
	if object == nil {
		return nil
	}
	for _, c := range object.Status.Conditions {
		for _, r := range f.ofCondition("file system "+id, c) {
			results = append(results, r.ofFileSystem(id))
		}
	}
	return results
}

// checkUnlisted is about file systems that the table does not have yet.
func (f *facts) checkUnlisted() (results []Result) {
	for _, object := range f.FileSystemObjects {
		if !f.isListed(object.Name) {
			results = append(results, f.conditionsOfFileSystem(object.Name)...)
		}
	}
	return results
}

// checkTunnelsOf reads the NodeTunnels of a node that has an agent, or should have one.
func (f *facts) checkTunnelsOf(node *corev1.Node) (results []Result) {
	object := f.tunnels[node.Name]
	if object == nil || f.Agents != nil && !f.isSelected(node) {
		return nil
	}
	name := "node " + node.Name
	for _, tunnel := range object.Status.Tunnels {
		for _, p := range tunnel.Problems {
			remedy := status.Remedy(p.Reason)
			if p.Cause != nil {
				remedy = cmp.Or(tunnelspec.ProbeRemedy(p.Cause.Reason), remedy)
			}
			results = append(results, problem(Cause(p.Reason), name, f.lasting(p.Message, p.Since.Time), remedy))
		}
	}
	for _, c := range object.Status.Conditions {
		// The agent's pod shows the first, and the tunnels themselves the second.
		if !slices.Contains([]string{status.Ready, status.TunnelsServe}, c.Type) {
			results = append(results, f.ofCondition(name, c)...)
		}
	}
	for i := range results {
		results[i] = results[i].ofNode(node.Name)
	}
	return results
}
