package inspect

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	kubeobjects "gnuthought.com/efs-stunnel/pkg/kube/objects"
)

// objects returns those of a snapshot, as the apiserver has them.
func objects(s *Snapshot) []runtime.Object {
	all := []runtime.Object{s.Manager, s.Agents, s.Lease, s.Table}
	for _, claim := range s.Claims {
		all = append(all, claim)
	}
	for _, volume := range s.Volumes {
		all = append(all, volume)
	}
	for _, class := range s.Classes {
		all = append(all, class)
	}
	for _, node := range s.Nodes {
		all = append(all, node)
	}
	for _, pod := range s.Pods {
		all = append(all, pod)
	}
	for _, job := range s.Jobs {
		all = append(all, job)
	}
	return all
}

func options() Options {
	return Options{ClaimNamespace: "team", Now: func() time.Time { return now }}
}

func TestGatherReadsWhatThereIs(t *testing.T) {
	want := healthy(t)
	inJob(t, want)
	user := &corev1.Pod{}
	user.Namespace, user.Name = "team", "user"
	client := fake.NewClientset(append(objects(want), user)...)
	o := options()
	o.WithUsers = true
	got, err := Gather(t.Context(), client, o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(NewStatus(want).FileSystems, NewStatus(got).FileSystems); diff != "" {
		t.Errorf("file systems mismatch (-want +got):\n%s", diff)
	}
	if len(got.Unread) > 0 || len(got.Users) != 1 || len(got.Jobs) != 1 || NewStatus(got).Level != Note {
		t.Errorf("%d users, %d Jobs, unread %v, status %+v", len(got.Users), len(got.Jobs), got.Unread, NewStatus(got))
	}
}

func newDynamicClient(existing ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.FileSystems(): "FileSystemList", v1alpha1.NodeTunnelsObjects(): "NodeTunnelsList",
		v1alpha1.Installations(): "InstallationList", v1alpha1.SharedVolumes(): "SharedVolumeList",
	}, existing...)
}

// TestGatherReadsConditions, and that the cluster does not have their definitions.
func TestGatherReadsConditions(t *testing.T) {
	client := newDynamicClient()
	w := kubeobjects.StatusWriter{Client: client, Resource: v1alpha1.NodeTunnelsObjects(), Kind: v1alpha1.NodeTunnelsKind}
	if err := w.Write(t.Context(), "n1", v1alpha1.NodeTunnelsStatus{Total: 7}); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Dynamic = client
	got, err := Gather(t.Context(), fake.NewClientset(objects(healthy(t))...), o)
	if err != nil || len(got.NodeTunnels) != 1 || got.NodeTunnels[0].Status.Total != 7 || len(got.Conditions) != 1 || got.Undefined {
		t.Errorf("got %+v, %v", got, err)
	}
	client.PrependReactor("list", v1alpha1.NodeTunnelsResource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	})
	if got, err := Gather(t.Context(), fake.NewClientset(objects(healthy(t))...), o); err != nil || !got.Undefined {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestGatherLeavesOutOtherInstallations: their file systems are not this one's.
func TestGatherLeavesOutOtherInstallations(t *testing.T) {
	client := newDynamicClient()
	for _, namespace := range []string{wellknown.Namespace, "other"} {
		fileSystems := kubeobjects.StatusWriter{Client: client, Resource: v1alpha1.FileSystems(), Kind: v1alpha1.FileSystemKind, Installation: namespace}
		installations := kubeobjects.StatusWriter{Client: client, Resource: v1alpha1.Installations(), Kind: v1alpha1.InstallationKind}
		if err := errors.Join(
			fileSystems.Write(t.Context(), "fs-of-"+namespace, v1alpha1.FileSystemStatus{}),
			installations.Write(t.Context(), namespace, v1alpha1.InstallationStatus{Leader: namespace}),
		); err != nil {
			t.Fatal(err)
		}
	}
	o := options()
	o.Dynamic = client
	got, err := Gather(t.Context(), fake.NewClientset(objects(healthy(t))...), o)
	if err != nil || len(got.FileSystemObjects) != 1 || got.Installation.Status.Leader != wellknown.Namespace || len(got.Conditions) != 4 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestGatherFindsTheNamespace(t *testing.T) {
	s := healthy(t)
	s.Agents.Namespace = "openshift-efs-stunnel"
	got, err := Gather(t.Context(), fake.NewClientset(objects(s)...), options())
	if err != nil || got.Namespace != "openshift-efs-stunnel" || got.Agents == nil {
		t.Errorf("namespace %q, %v", got.Namespace, err)
	}
}

func TestGatherOfAnEmptyCluster(t *testing.T) {
	got, err := Gather(t.Context(), fake.NewClientset(), options())
	if err != nil {
		t.Fatal(err)
	}
	status := NewStatus(got)
	if got.Namespace != wellknown.Namespace || status.Level != Problem || status.Problems[0].Cause != AgentsMissing {
		t.Errorf("namespace %s, %+v", got.Namespace, status)
	}
}

// TestGatherWithoutRights: what may be read still is, and no object that could not be read counts as
// missing.
func TestGatherWithoutRights(t *testing.T) {
	client := fake.NewClientset(objects(healthy(t))...)
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		own := action.GetNamespace() == "team"
		resource := schema.GroupResource{Group: action.GetResource().Group, Resource: action.GetResource().Resource}
		return !own, nil, apierrors.NewForbidden(resource, "", errors.New("no"))
	})
	got, err := Gather(t.Context(), client, options())
	if err != nil {
		t.Fatal(err)
	}
	status := NewStatus(got)
	if status.Level != Unknown || len(got.Claims) != 1 {
		t.Errorf("level %s, %d claims, problems %+v", status.Level, len(got.Claims), status.Problems)
	}
	rights := map[string]bool{}
	for _, right := range status.Unread {
		if rights[right] {
			t.Errorf("%q is there twice", right)
		}
		rights[right] = true
	}
	for _, want := range []string{"Leader: ?\n", "Agents: ?\n", "Waiting claims: 0, of those that you may list\n", "Jobs that run or failed: ?\n", "Volumes: ?\n"} {
		if text := printed(t, "", status); !strings.Contains(text, want) {
			t.Errorf("the status lacks %q:\n%s", want, text)
		}
	}
	diagnosis := printed(t, "", Examine(got, dataSubject))
	if strings.Count(diagnosis, "UNKNOWN") != 1 || strings.Count(diagnosis, "right to list persistentvolumes ") != 1 {
		t.Errorf("the diagnosis has not each right once:\n%s", diagnosis)
	}
	for _, want := range []string{
		"get daemonsets.apps efs-stunnel in namespace efs-stunnel", "get deployments.apps efs-manager in namespace efs-stunnel",
		"list persistentvolumes in all namespaces", "list persistentvolumeclaims in all namespaces", "list nodes in all namespaces",
	} {
		if !rights[want] {
			t.Errorf("%q is not among %q", want, status.Unread)
		}
	}
}

func TestGatherFailsWithoutAnApiserver(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	if _, err := Gather(t.Context(), client, options()); err == nil {
		t.Error("no error")
	}
}

func TestProvisionerIsThatOfTheManager(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  string
		want string
	}{
		"default":       {nil, "", wellknown.DefaultProvisioner},
		"variable":      {nil, "example.com/a", "example.com/a"},
		"flag":          {[]string{"--provisioner=example.com/b"}, "example.com/a", "example.com/b"},
		"separate flag": {[]string{"--provisioner", "example.com/b"}, "", "example.com/b"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			manager := deployment("m", "w")
			container := &manager.Spec.Template.Spec.Containers[0]
			container.Args = tt.args
			container.Env = append(container.Env, corev1.EnvVar{Name: "STORAGE_PROVISIONER_NAME", Value: tt.env})
			if got := provisionerOf(manager); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
