package objects_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func TestEachChangeIsOneWrite(t *testing.T) {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "1"}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c", UID: "2"}}
	for action, want := range map[volumes.Action]string{
		volumes.CreateVolume:    "create persistentvolumes",
		volumes.UpdateVolume:    "patch persistentvolumes",
		volumes.UnprotectVolume: "patch persistentvolumes",
		volumes.DeleteVolume:    "delete persistentvolumes",
		volumes.CreateClaim:     "create persistentvolumeclaims team",
		volumes.UpdateClaim:     "patch persistentvolumeclaims team",
		volumes.DeleteClaim:     "delete persistentvolumeclaims team",
	} {
		t.Run(string(action), func(t *testing.T) {
			client := fake.NewClientset(volume, claim)
			if action == volumes.CreateVolume || action == volumes.CreateClaim {
				client = fake.NewClientset()
			}
			if err := objects.ApplyChange(t.Context(), client, volume, claim, volumes.Change{Action: action, Volume: volume, Claim: claim}); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range client.Actions() {
				text := a.GetVerb() + " " + a.GetResource().Resource
				if namespace := a.GetNamespace(); namespace != "" {
					text += " " + namespace
				}
				got = append(got, text)
			}
			if diff := cmp.Diff([]string{want}, got); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGetReadsTheVolumeFirst, or a claim that is created in between could look deleted.
func TestGetReadsTheVolumeFirst(t *testing.T) {
	client := fake.NewClientset(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c"}})
	volume, claim, err := objects.ReadPair(t.Context(), client, "v", "team", "c")
	if err != nil || volume != nil || claim == nil {
		t.Errorf("got %v, %v, %v", volume, claim, err)
	}
	if first := client.Actions()[0].GetResource().Resource; first != "persistentvolumes" {
		t.Errorf("%s are read first", first)
	}
}

func TestRaces(t *testing.T) {
	resource, errBoom := corev1.Resource("persistentvolumes"), errors.New("boom")
	for err, want := range map[error]bool{
		apierrors.NewConflict(resource, "v", errBoom):  true,
		apierrors.NewNotFound(resource, "v"):           true,
		apierrors.NewAlreadyExists(resource, "v"):      true,
		apierrors.NewForbidden(resource, "v", errBoom): false,
	} {
		if got := objects.IsRace(err); got != want {
			t.Errorf("%v: got %v", err, got)
		}
	}
}
