//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

func keeping(keep string) map[string]string { return map[string]string{"keep_deleted": keep} }

// inTrash is where a deleted volume's directory lies.
func inTrash(v boundVolume) string { return path.Join(wellknown.TrashDirectory, v.object.Name) }

// TestTrashIsKept has deleted directories lie in the trash for their time, and be swept then.
func TestTrashIsKept(t *testing.T) {
	s := newClaimsWorld(t, sweepingSoon)
	long, forever := s.NewClass("long", keeping("1h")).Name, s.NewClass("forever", keeping("forever")).Name
	kept := []boundVolume{s.bound("long", long), s.bound("forever", forever)}
	for _, v := range kept {
		s.write(v.path, v.claim.Name)
		s.deleteClaims(v.claim)
	}
	for _, v := range kept {
		s.AwaitVolumeGone(v.claim)
		s.wantNoTrace(v.path)
	}
	at := s.awaitNextSweep()
	if until := time.Until(at); until < 50*time.Minute || until > time.Hour+time.Minute { // the index of the trash rounds up
		t.Errorf("the next sweep is due in %s", until)
	}
	short := s.bound("short", s.NewClass("short", keeping("2s")).Name)
	s.write(short.path, "data")
	s.deleteClaims(short.claim)
	s.AwaitVolumeGone(short.claim)
	s.wantNoTrace(short.path)
	s.Eventually("what was kept for 2 seconds is swept", func(context.Context) error {
		if s.Exists(s.fileSystem, inTrash(short)) {
			return errors.New("it is in the trash")
		}
		return nil
	})
	s.AwaitJobsUsed()
	for _, v := range kept {
		s.wantFile(inTrash(v), v.claim.Name)
	}
	s.wantSweeps()
}

// awaitNextSweep waits until the manager knows when the trash has something to remove.
func (s *claimsWorld) awaitNextSweep() (at time.Time) {
	s.Helper()
	s.Eventually("the next sweep is known", func(ctx context.Context) error {
		root, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(ctx, volumes.RootName(s.fileSystem), metav1.GetOptions{})
		if err != nil {
			return err
		}
		at, err = time.Parse(time.RFC3339, root.Annotations[wellknown.AnnotationNextSweep])
		return err
	})
	return at
}

// wantSweeps wants sweeps that ended well: one for each deletion at most, and one for the time that
// was over.
func (s *claimsWorld) wantSweeps() {
	s.Helper()
	sweeps := 0
	for _, run := range s.Kubelet.Runs() {
		if strings.HasPrefix(run.Job, "efs-sweep-"+s.fileSystem+"-") {
			sweeps++
			if run.ExitCode != 0 {
				s.Errorf("Job %s ended with exit code %d: %s", run.Job, run.ExitCode, run.Message)
			}
		}
	}
	if sweeps == 0 || sweeps > 4 {
		s.Errorf("%d sweeps\n%s", sweeps, s.Story())
	}
}

func restoring(from *corev1.PersistentVolumeClaim) func(*corev1.PersistentVolumeClaim) {
	return withAnnotations(map[string]string{wellknown.AnnotationRestore: string(from.UID)})
}

// TestRestore gives a deleted directory back, in its own namespace and once.
func TestRestore(t *testing.T) {
	s := newClaimsWorld(t, sweepingSoon)
	other := s.Named("other-team")
	s.NewNamespace(other)
	class := s.NewClass("keeping", keeping("forever")).Name
	lost := s.bound("data", class, called("data"))
	s.write(lost.path, "data")
	s.deleteClaims(lost.claim)
	s.AwaitVolumeGone(lost.claim)
	s.wantNothingAt(lost.path)

	thief := s.NewClaim("thief", class, restoring(lost.claim), inNamespace(other))
	s.awaitTold(thief, wellknown.EventProvisioningFailed, string(lost.claim.UID), "belongs to another namespace", "restore it there")
	s.wantNothingAt(ownDirectory(thief))
	s.wantFile(inTrash(lost), "data")
	s.deleteClaims(thief)
	stranger := s.NewClaim("stranger", class, withAnnotations(map[string]string{wellknown.AnnotationRestore: "01234567-89ab-cdef-0123-456789abcdef"}))
	s.awaitTold(stranger, wellknown.EventProvisioningFailed, "the trash has no directory", "01234567-89ab-cdef-0123-456789abcdef")
	s.deleteClaims(stranger)

	back := s.bound("data", class, called("data"), restoring(lost.claim))
	if back.path != lost.path {
		t.Errorf("the path is %s, was %s", back.path, lost.path)
	}
	s.wantFile(back.path, "data")
	s.wantNothingAt(inTrash(lost))
	again := s.NewClaim("again", class, restoring(lost.claim))
	s.awaitTold(again, wellknown.EventProvisioningFailed, "the trash has no directory", fmt.Sprint(lost.claim.UID))
	s.deleteClaims(again)

	s.deleteClaims(back.claim) // it was made for a volume, so it goes with the last one
	s.AwaitVolumeGone(back.claim)
	s.wantNoTrace(back.path)
	s.wantFile(inTrash(back), "data")
}
