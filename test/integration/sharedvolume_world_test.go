//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

const crdFile = "../../deploy/kustomize/components/shared-volumes/crd.yaml"

func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// sharing is a world with SharedVolumes, of which there is one at a time: the API is the whole
// cluster's.
type sharing struct {
	*world.World
	dynamic    dynamic.Interface
	fileSystem string
}

func newSharing(t *testing.T) *sharing {
	t.Helper()
	w := newWorld(t)
	client, err := dynamic.NewForConfig(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &sharing{World: w, dynamic: client, fileSystem: w.NewFileSystem()}
}

// withPaths lets the team's namespace name paths.
func (s *sharing) withPaths() func(*loops.Options) {
	return func(o *loops.Options) { o.SharedVolumePaths = []string{s.Team} }
}

func (s *sharing) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// install makes the API known, as the component does, and takes it away with the test.
func (s *sharing) install() {
	s.Helper()
	text, err := os.ReadFile(crdFile)
	s.check(err)
	definition := &unstructured.Unstructured{}
	s.check(yaml.Unmarshal(text, &definition.Object))
	_, err = s.dynamic.Resource(definitions()).Create(s.Context(), definition, metav1.CreateOptions{})
	s.check(err)
	s.Cleanup(func() {
		s.free()
		s.uninstall()
		s.awaitUninstalled()
	})
	s.Eventually("the API is served", func(ctx context.Context) error {
		_, err := s.dynamic.Resource(v1alpha1.SharedVolumes()).List(ctx, metav1.ListOptions{})
		return err
	})
}

// free takes finalizers off what no manager takes care of any longer.
func (s *sharing) free() {
	ctx := context.WithoutCancel(s.Context())
	all, err := s.dynamic.Resource(v1alpha1.SharedVolumes()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return // the API is gone
	}
	for _, o := range all.Items {
		_, err := s.objects(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	}
}

func definitionName() string { return v1alpha1.SharedVolumeResource + "." + v1alpha1.GroupName }

func (s *sharing) uninstall() {
	err := s.dynamic.Resource(definitions()).Delete(context.WithoutCancel(s.Context()), definitionName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.Error(err)
	}
}

func (s *sharing) awaitUninstalled() {
	s.Eventually("the API is gone", func(ctx context.Context) error {
		_, err := s.dynamic.Resource(definitions()).Get(ctx, definitionName(), metav1.GetOptions{})
		return wantNotFound(err)
	})
}

func wantNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = errors.New("it is still there")
	}
	return err
}

func (s *sharing) objects(namespace string) dynamic.ResourceInterface {
	return s.dynamic.Resource(v1alpha1.SharedVolumes()).Namespace(namespace)
}

// accessPoint is one that EFS has.
func (s *sharing) accessPoint(number int) (id string) {
	id = fmt.Sprintf("fsap-%dx%d", s.Number, number)
	s.EFS.PutAccessPoint(efs.AccessPoint{ID: id, FileSystemID: s.fileSystem, RootPath: "/root", State: efs.Available})
	return id
}

// share tries to make a SharedVolume.
func (s *sharing) share(namespace, name string, spec v1alpha1.SharedVolumeSpec) (*v1alpha1.SharedVolume, error) {
	s.Helper()
	object, err := (&v1alpha1.SharedVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}).ToUnstructured()
	s.check(err)
	made, err := s.objects(namespace).Create(s.Context(), object, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return v1alpha1.FromUnstructured(made)
}

// shared makes a SharedVolume of the team's namespace.
func (s *sharing) shared(name string, spec v1alpha1.SharedVolumeSpec) *v1alpha1.SharedVolume {
	s.Helper()
	if spec.FileSystemID == "" {
		spec.FileSystemID = s.fileSystem
	}
	object, err := s.share(s.Team, name, spec)
	s.check(err)
	return object
}

func (s *sharing) get(ctx context.Context, o *v1alpha1.SharedVolume) (*v1alpha1.SharedVolume, error) {
	object, err := s.objects(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return v1alpha1.FromUnstructured(object)
}

// await waits for a phase, and a part of the message.
func (s *sharing) await(o *v1alpha1.SharedVolume, phase v1alpha1.Phase, message string) *v1alpha1.SharedVolume {
	s.Helper()
	var found *v1alpha1.SharedVolume
	s.Eventually(fmt.Sprintf("SharedVolume %s/%s is %s (%s)", o.Namespace, o.Name, phase, message), func(ctx context.Context) (err error) {
		if found, err = s.get(ctx, o); err != nil {
			return err
		}
		if is := found.Status; is.Phase != phase || !strings.Contains(is.Message, message) {
			return fmt.Errorf("it is %s: %s", is.Phase, is.Message)
		}
		return nil
	})
	return found
}

// pair are volume and claim as they are.
type pair struct {
	volume *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim
}

func (s *sharing) pairOf(ctx context.Context, o *v1alpha1.SharedVolume) (p pair, err error) {
	if p.volume, err = s.Client.CoreV1().PersistentVolumes().Get(ctx, "pv-"+o.Namespace+"-"+o.Name, metav1.GetOptions{}); err != nil {
		return p, err
	}
	p.claim, err = s.Client.CoreV1().PersistentVolumeClaims(o.Namespace).Get(ctx, "pvc-"+o.Name, metav1.GetOptions{})
	return p, err
}

// ready waits until pods can use it, and gives what they use.
func (s *sharing) ready(o *v1alpha1.SharedVolume) pair {
	s.Helper()
	s.await(o, v1alpha1.Ready, "")
	p, err := s.pairOf(s.Context(), o)
	s.check(err)
	if p.claim.Status.Phase != corev1.ClaimBound || p.volume.Status.Phase != corev1.VolumeBound {
		s.Errorf("the claim is %s, the volume %s", p.claim.Status.Phase, p.volume.Status.Phase)
	}
	return p
}

func (s *sharing) unshare(o *v1alpha1.SharedVolume) {
	s.Helper()
	s.check(s.objects(o.Namespace).Delete(s.Context(), o.Name, metav1.DeleteOptions{}))
}

// awaitUnshared wants nothing to be left.
func (s *sharing) awaitUnshared(o *v1alpha1.SharedVolume) {
	s.Helper()
	s.Eventually(fmt.Sprintf("nothing is left of SharedVolume %s/%s", o.Namespace, o.Name), func(ctx context.Context) error {
		if _, err := s.get(ctx, o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the object: %w", wantNotFound(err))
		}
		return nil
	})
	core := s.Client.CoreV1()
	_, err := core.PersistentVolumes().Get(s.Context(), "pv-"+o.Namespace+"-"+o.Name, metav1.GetOptions{})
	if err := wantNotFound(err); err != nil {
		s.Errorf("its volume: %v", err)
	}
	_, err = core.PersistentVolumeClaims(o.Namespace).Get(s.Context(), "pvc-"+o.Name, metav1.GetOptions{})
	if err := wantNotFound(err); err != nil {
		s.Errorf("its claim: %v", err)
	}
}

// liveThrough has an object become ready, lose its volume and get another, and go.
func (s *sharing) liveThrough(o *v1alpha1.SharedVolume) {
	s.Helper()
	before := s.ready(o)
	s.check(s.Client.CoreV1().PersistentVolumes().Delete(s.Context(), before.volume.Name, metav1.DeleteOptions{}))
	s.awaitHealed(o, func(after pair) error {
		if after.volume.UID == before.volume.UID {
			return errors.New("the volume is the same")
		}
		return nil
	})
	s.unshare(o)
	s.awaitUnshared(o)
}

// use starts a pod that has a claim mounted; it ends when it is told to.
func (s *sharing) use(claim *corev1.PersistentVolumeClaim) (end func()) {
	s.Helper()
	pods := s.Client.CoreV1().Pods(claim.Namespace)
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "user"},
		Spec: corev1.PodSpec{
			NodeName: s.Nodes[0], AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "user", Image: "user"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
			}}},
		},
	}
	s.Eventually("a pod is made", func(ctx context.Context) error { // once there is a service account
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	return func() {
		s.Helper()
		now := int64(0)
		s.check(pods.Delete(s.Context(), "user", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}
}

// told waits for an event about an object.
func (s *sharing) told(o *v1alpha1.SharedVolume, reason, part string) {
	s.Helper()
	s.Eventually(fmt.Sprintf("an event %s says %q", reason, part), func(ctx context.Context) error {
		events, err := s.Client.CoreV1().Events(o.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.UID == o.UID && e.Reason == reason && strings.Contains(e.Message, part)
		}) {
			return nil
		}
		return fmt.Errorf("none of %d events does", len(events.Items))
	})
}

// file is one that must outlive everything.
func (s *sharing) file(path string) {
	s.Helper()
	s.check(os.MkdirAll(s.Folder(s.fileSystem)+"/"+path, 0o755))
	s.check(os.WriteFile(s.Folder(s.fileSystem)+"/"+path+"/file", []byte("precious"), 0o600))
}

func (s *sharing) wantFile(path string) {
	s.Helper()
	if text, err := os.ReadFile(s.Folder(s.fileSystem) + "/" + path + "/file"); err != nil || string(text) != "precious" {
		s.Errorf("the file has %q, error %v", text, err)
	}
}

func portOption(volume *corev1.PersistentVolume) string {
	i := slices.IndexFunc(volume.Spec.MountOptions, func(option string) bool { return strings.HasPrefix(option, "port=") })
	if i < 0 {
		return ""
	}
	return volume.Spec.MountOptions[i]
}
