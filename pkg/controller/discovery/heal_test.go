package discovery

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// A root claim that the binder sees before its volume would wait for 15 seconds.
func TestARootClaimComesALookAfterItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil, tableMap(tableOf(map[string]ports.Target{})))
		c.client.ClearActions()
		work := rootWork{pair: volumes.RootPair{FileSystemID: "fs-1", Port: 20490, Namespace: namespace}}
		for _, want := range []string{"create persistentvolumes", "create persistentvolumeclaims"} {
			if err := c.exec.heal(t.Context(), work); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff([]string{want}, c.writes()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		}
	})
}
