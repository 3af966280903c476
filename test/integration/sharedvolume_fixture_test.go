//go:build integration

package integration_test

import (
	"context"
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

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

const crdFile = "../../deploy/kustomize/components/shared-volumes/crd.yaml"

// sharedVolumeFixture has SharedVolumes. Their API is the whole cluster's, so these tests do not run in
// parallel.
type sharedVolumeFixture struct{ *fixture }

func newSharedVolumeFixture(t *testing.T) sharedVolumeFixture {
	t.Helper()
	return sharedVolumeFixture{newFixture(t)}
}

// newInstalledFixture also has the API installed until the end of the test.
func newInstalledFixture(t *testing.T) sharedVolumeFixture {
	t.Helper()
	f := newSharedVolumeFixture(t)
	f.install()
	return f
}

// allowPaths lets SharedVolumes in the team's namespace name paths.
func (f sharedVolumeFixture) allowPaths(o *loops.Options) { o.SharedVolumePaths = []string{f.Team} }

func (f sharedVolumeFixture) definitions() dynamic.ResourceInterface {
	return f.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
}

func (f sharedVolumeFixture) objects(namespace string) dynamic.ResourceInterface {
	return f.Dynamic.Resource(v1alpha1.SharedVolumes()).Namespace(namespace)
}

// install installs the API until the end of the test.
func (f sharedVolumeFixture) install() {
	f.Helper()
	text, err := os.ReadFile(crdFile)
	f.check(err)
	definition := &unstructured.Unstructured{}
	f.check(yaml.Unmarshal(text, &definition.Object))
	_, err = f.definitions().Create(f.Context(), definition, metav1.CreateOptions{})
	f.check(err)
	f.Cleanup(func() {
		f.removeFinalizers()
		f.uninstall()
	})
	f.Eventually("the API is served", func(ctx context.Context) error {
		_, err := f.Dynamic.Resource(v1alpha1.SharedVolumes()).List(ctx, metav1.ListOptions{})
		return err
	})
}

// removeFinalizers is for objects that a failed test has left, without a manager.
func (f sharedVolumeFixture) removeFinalizers() {
	ctx := context.WithoutCancel(f.Context())
	all, err := f.Dynamic.Resource(v1alpha1.SharedVolumes()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return // the API is not installed
	}
	for _, o := range all.Items {
		_, err := f.objects(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			f.Error(err)
		}
	}
}

// uninstall deletes the API, and waits until its objects are deleted, too.
func (f sharedVolumeFixture) uninstall() {
	name := v1alpha1.SharedVolumeResource + "." + v1alpha1.GroupName
	err := f.definitions().Delete(context.WithoutCancel(f.Context()), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		f.Error(err)
	}
	f.WaitForDeleted("the API", func(ctx context.Context) error {
		_, err := f.definitions().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// createAccessPoint makes an access point in the EFS API.
func (f sharedVolumeFixture) createAccessPoint(number int) (id string) {
	id = fmt.Sprintf("fsap-%dx%d", f.Number, number)
	f.EFS.PutAccessPoint(efs.AccessPoint{ID: id, FileSystemID: f.fileSystem, State: efs.Available})
	return id
}

// tryCreate returns the apiserver's error.
func (f sharedVolumeFixture) tryCreate(namespace, name string, spec v1alpha1.SharedVolumeSpec) (*v1alpha1.SharedVolume, error) {
	f.Helper()
	object, err := (&v1alpha1.SharedVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}).ToUnstructured()
	f.check(err)
	created, err := f.objects(namespace).Create(f.Context(), object, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return v1alpha1.FromUnstructured(created)
}

// create creates a SharedVolume on the file system.
func (f sharedVolumeFixture) create(namespace, name string, spec v1alpha1.SharedVolumeSpec) *v1alpha1.SharedVolume {
	f.Helper()
	spec.FileSystemID = f.fileSystem
	object, err := f.tryCreate(namespace, name, spec)
	f.check(err)
	return object
}

func (f sharedVolumeFixture) get(ctx context.Context, o *v1alpha1.SharedVolume) (*v1alpha1.SharedVolume, error) {
	object, err := f.objects(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return v1alpha1.FromUnstructured(object)
}

// waitForStatus waits for a phase, and a part of the message.
func (f sharedVolumeFixture) waitForStatus(o *v1alpha1.SharedVolume, phase v1alpha1.Phase, message string) *v1alpha1.SharedVolume {
	f.Helper()
	var found *v1alpha1.SharedVolume
	f.Eventually(fmt.Sprintf("SharedVolume %s/%s is %s (%s)", o.Namespace, o.Name, phase, message), func(ctx context.Context) (err error) {
		if found, err = f.get(ctx, o); err != nil {
			return err
		}
		if status := found.Status; status.Phase != phase || !strings.Contains(status.Message, message) {
			return fmt.Errorf("it is %s: %s", status.Phase, status.Message)
		}
		return nil
	})
	return found
}

// pair is the volume and the claim of a SharedVolume.
type pair struct {
	volume *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim
}

func volumeNameOf(o *v1alpha1.SharedVolume) string { return "pv-" + o.Namespace + "-" + o.Name }

func (f sharedVolumeFixture) pairOf(ctx context.Context, o *v1alpha1.SharedVolume) (p pair, err error) {
	if p.volume, err = f.volumes().Get(ctx, volumeNameOf(o), metav1.GetOptions{}); err != nil {
		return p, err
	}
	p.claim, err = f.claims(o.Namespace).Get(ctx, "pvc-"+o.Name, metav1.GetOptions{})
	return p, err
}

// waitForReady returns what pods use.
func (f sharedVolumeFixture) waitForReady(o *v1alpha1.SharedVolume) pair {
	f.Helper()
	f.waitForStatus(o, v1alpha1.Ready, "")
	p, err := f.pairOf(f.Context(), o)
	f.check(err)
	if p.claim.Status.Phase != corev1.ClaimBound || p.volume.Status.Phase != corev1.VolumeBound {
		f.Errorf("the claim is %s, the volume %s", p.claim.Status.Phase, p.volume.Status.Phase)
	}
	return p
}

func (f sharedVolumeFixture) delete(o *v1alpha1.SharedVolume) {
	f.Helper()
	f.check(f.objects(o.Namespace).Delete(f.Context(), o.Name, metav1.DeleteOptions{}))
}

// waitForDeleted expects that the volume and the claim are deleted with the object.
func (f sharedVolumeFixture) waitForDeleted(o *v1alpha1.SharedVolume) {
	f.Helper()
	f.WaitForDeleted("SharedVolume "+o.Namespace+"/"+o.Name, func(ctx context.Context) error {
		_, err := f.get(ctx, o)
		return err
	})
	_, err := f.volumes().Get(f.Context(), volumeNameOf(o), metav1.GetOptions{})
	if err := testenv.WantNotFound(err); err != nil {
		f.Errorf("its volume: %v", err)
	}
	_, err = f.claims(o.Namespace).Get(f.Context(), "pvc-"+o.Name, metav1.GetOptions{})
	if err := testenv.WantNotFound(err); err != nil {
		f.Errorf("its claim: %v", err)
	}
}

// runSharedVolume has an object become ready, lose its volume, get another one, and be deleted.
func (f sharedVolumeFixture) runSharedVolume(o *v1alpha1.SharedVolume) {
	f.Helper()
	before := f.waitForReady(o)
	f.deleteVolume(before.volume.Name)
	f.waitForHealed(o, func(after pair) error {
		if after.volume.UID == before.volume.UID {
			return fmt.Errorf("the volume is the same")
		}
		return nil
	})
	f.delete(o)
	f.waitForDeleted(o)
}

func portOption(volume *corev1.PersistentVolume) string {
	i := slices.IndexFunc(volume.Spec.MountOptions, func(option string) bool { return strings.HasPrefix(option, "port=") })
	if i < 0 {
		return ""
	}
	return volume.Spec.MountOptions[i]
}
