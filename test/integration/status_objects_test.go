//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// installConditions creates the definitions of objects with conditions until the end of the test.
func installConditions(env *testenv.Env) {
	env.Helper()
	text, err := os.ReadFile("../../deploy/kustomize/base/status-crds.yaml")
	if err != nil {
		env.Fatal(err)
	}
	definitions := env.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			env.Fatal(err)
		}
		if _, err := definitions.Create(env.Context(), object, metav1.CreateOptions{}); err != nil {
			env.Fatal(err)
		}
		env.Cleanup(func() {
			if err := definitions.Delete(context.WithoutCancel(env.Context()), object.GetName(), metav1.DeleteOptions{}); err != nil {
				env.Error(err)
			}
			env.WaitForDeleted(object.GetName(), func(ctx context.Context) error {
				_, err := definitions.Get(ctx, object.GetName(), metav1.GetOptions{})
				return err
			})
		})
	}
	for _, resource := range []schema.GroupVersionResource{v1alpha1.FileSystems(), v1alpha1.NodeTunnelsObjects(), v1alpha1.Installations()} {
		env.Eventually("the apiserver serves "+resource.Resource, func(ctx context.Context) error {
			_, err := env.Dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
			return err
		})
	}
}

// writeAndRead wants the apiserver to keep every field of a status.
func writeAndRead[T, S any](env *testenv.Env, w objects.StatusWriter, name string, written S, statusOf func(*T) S) {
	env.Helper()
	for range 2 { // the first creates the object
		if err := w.Write(env.Context(), name, written); err != nil {
			env.Fatal(err)
		}
	}
	object, err := w.Client.Resource(w.Resource).Get(env.Context(), name, metav1.GetOptions{})
	if err != nil {
		env.Fatal(err)
	}
	typed, err := v1alpha1.Read[T](object)
	if err != nil {
		env.Fatal(err)
	}
	if diff := cmp.Diff(written, statusOf(typed)); diff != "" {
		env.Errorf("status of %s mismatch (-written +read):\n%s", w.Kind, diff)
	}
}

// someTime is one that the apiserver keeps as it is.
func someTime() time.Time { return time.Now().Truncate(time.Second) }

func someConditions(kind status.Kind, reason string) []metav1.Condition {
	return v1alpha1.NewConditions(kind, []status.Condition{{
		Subject: status.Subject{Kind: kind}, Reason: reason, Message: "a message", Since: someTime(),
	}}, nil, someTime())
}

func TestDefinitionsKeepEveryField(t *testing.T) {
	env := newEnv(t)
	installConditions(env)
	writer := func(resource schema.GroupVersionResource, kind string) objects.StatusWriter {
		return objects.StatusWriter{Client: env.Dynamic, Resource: resource, Kind: kind}
	}
	writeAndRead(env, writer(v1alpha1.FileSystems(), v1alpha1.FileSystemKind), "fs-1", v1alpha1.FileSystemStatus{
		DisplayName: "shared", Port: 20490, Source: v1alpha1.SourceEFS,
		MountTargets: []v1alpha1.MountTarget{{Location: "us-east-1a", Address: "10.0.0.4"}},
		Conditions:   someConditions(status.FileSystem, wellknown.EventFileSystemUnusable),
	}, func(o *v1alpha1.FileSystem) v1alpha1.FileSystemStatus { return o.Status })
	writeAndRead(env, writer(v1alpha1.NodeTunnelsObjects(), v1alpha1.NodeTunnelsKind), "node", v1alpha1.NodeTunnelsStatus{
		Version: "1.2", Total: 3, InUse: 2, Failing: 1, Conditions: someConditions(status.Node, wellknown.EventTableMissing),
		Tunnels: []v1alpha1.Tunnel{{Name: "fs-1", Port: 20490, MountTarget: "10.0.0.4", InUse: true, Problems: []v1alpha1.Problem{{
			Reason: "TunnelUnhealthy", Message: "no answer", Since: metav1.NewTime(someTime()),
			Cause: &v1alpha1.Cause{Kind: "MountTarget", Name: "10.0.0.4", Reason: "Timeout"},
		}}}},
	}, func(o *v1alpha1.NodeTunnels) v1alpha1.NodeTunnelsStatus { return o.Status })
	writeAndRead(env, writer(v1alpha1.Installations(), v1alpha1.InstallationKind), wellknown.Namespace, v1alpha1.InstallationStatus{
		Leader: "efs-manager-1", Version: "1.2", Conditions: someConditions(status.Installation, wellknown.EventDiscoveryFailed),
	}, func(o *v1alpha1.Installation) v1alpha1.InstallationStatus { return o.Status })
}

// TestAgentWritesTheObjectOfItsNodeOnly: its rights allow all of them, and a policy its own.
func TestAgentWritesTheObjectOfItsNodeOnly(t *testing.T) {
	env := newEnvWithPolicies(t)
	installConditions(env)
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + wellknown.Namespace + ":" + wellknown.NodeDaemonSet, Groups: []string{"system:masters"},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"own"}},
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	administrator := objects.StatusWriter{Client: env.Dynamic, Resource: v1alpha1.NodeTunnelsObjects(), Kind: v1alpha1.NodeTunnelsKind}
	if err := administrator.Write(t.Context(), "existing", v1alpha1.NodeTunnelsStatus{}); err != nil {
		t.Fatal(err)
	}
	agent := administrator
	agent.Client = client
	const refusal = "the node agent may write no object but its own node's"
	number := 0
	waitForRefusal(env, refusal, func(ctx context.Context) error {
		number++
		return agent.Write(ctx, "existing", v1alpha1.NodeTunnelsStatus{Total: number}) // the subresource
	})
	if err := agent.Write(t.Context(), "new", v1alpha1.NodeTunnelsStatus{}); err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("got %v for another node's new object", err)
	}
	if err := client.Resource(v1alpha1.NodeTunnelsObjects()).Delete(t.Context(), "existing", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("got %v for the deletion of another node's", err)
	}
	for range 2 {
		if err := agent.Write(t.Context(), "own", v1alpha1.NodeTunnelsStatus{Total: number}); err != nil {
			t.Errorf("its own: %v", err)
		}
	}
}

// TestManagerShowsFileSystems as objects, while their definitions are installed.
func TestManagerShowsFileSystems(t *testing.T) {
	f := newFixture(t)
	installConditions(f.Env)
	id := f.NewFileSystem()
	f.startManager(nil)
	f.Eventually("the file system is shown as usable", func(ctx context.Context) error {
		object, err := f.Dynamic.Resource(v1alpha1.FileSystems()).Get(ctx, id, metav1.GetOptions{})
		if err != nil {
			return err
		}
		shown, err := v1alpha1.Read[v1alpha1.FileSystem](object)
		if err == nil && (shown.Status.Port == 0 || !meta.IsStatusConditionTrue(shown.Status.Conditions, status.Usable)) {
			err = fmt.Errorf("it is %+v", shown.Status)
		}
		return err
	})
}
