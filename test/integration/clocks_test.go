//go:build integration

package integration_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/apiclock"
	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// TestManagerWithAWrongClock has a manager provision, retry, give up, delete and sweep with a clock of
// its own that is wrong, as often as one whose clock is right.
func TestManagerWithAWrongClock(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 72 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			w := newWorld(t)
			clock := apiclock.New("test", func() time.Time { return time.Now().Add(ahead) }, slog.New(slog.NewTextHandler(w.Output(), nil)))
			w.Config = rest.CopyConfig(w.Config)
			w.Config.Wrap(clock.Wrap)
			s := &claimsWorld{World: w, fileSystem: w.NewFileSystem(), class: w.NewClass("efs", nil).Name}
			startManager(w, nil, hasty, func(options *loops.Options) { options.Now = clock.Now })

			s.Kubelet.PlayNext(kubelet.Fate{Ending: kubelet.Killed}) // attempt 1 is lost, 2 does well
			s.bound("killed", s.class)
			strict := s.NewClass("strict", map[string]string{"adopt_existing": "false"}).Name
			there := "/" + s.Team + "/there"
			s.makeDirectory(there, 0o755)
			s.write(there, "data")
			failing := s.NewClaim("failing", strict, called("there"))
			s.awaitGivenUp(failing, "")
			if tries := s.operations(failing, operations.Setup); tries != 2 {
				t.Errorf("the claim was given up after %d attempts, want 2", tries)
			}
			liveAClaim(w, s.fileSystem, s.class)
			w.AwaitJobsUsed() // which takes until the trash is swept

			if got := s.mountJobs(); got != 6 {
				t.Errorf("%d mount Jobs, want 6\n%s", got, s.Story())
			}
		})
	}
}

// mountJobs counts those of the file system.
func (s *claimsWorld) mountJobs() (count int) {
	s.Helper()
	jobs, err := s.Client.BatchV1().Jobs(s.Namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	prefix := mountjobs.Name{Kind: mountjobs.Mount, FileSystemID: s.fileSystem}.String()
	prefix = prefix[:strings.LastIndexByte(prefix, '-')+1]
	for _, job := range jobs.Items {
		if strings.HasPrefix(job.Name, prefix) {
			count++
		}
	}
	return count
}
