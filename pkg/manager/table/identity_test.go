package table

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/test/support/efstest"
)

// TestAnotherAccountsListingChangesNothing: the manager's credentials become those of an account
// that has a file system of its own, and later the right ones again.
func TestAnotherAccountsListingChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := []string{"fs-1", "fs-2"}
		api := efstest.New(fileSystem("fs-1", "a"), fileSystem("fs-2", "a"))
		c := start(t, api, claimed("v", "fs-1", 20490))
		before := c.configMap().Data[wellknown.TargetsKey]
		c.newEvents()
		c.writes()
		for _, id := range ours {
			api.Remove(id)
		}
		api.Put(fileSystem("fs-foreign", "a"))
		pass(10 * time.Minute) // many more polls than remove a file system
		if diff := cmp.Diff(before, c.configMap().Data[wellknown.TargetsKey]); diff != "" {
			t.Errorf("the table changed (-before +after):\n%s", diff)
		}
		if got := c.writes(); len(got) > 0 {
			t.Errorf("writes %q", got)
		}
		if got := c.newEvents(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning IdentityLooksWrong ") {
			t.Errorf("events %q", got)
		}
		s := c.Snapshot()
		if len(s.Gone) > 0 || s.FileSystems["fs-1"].Unusable != "" || s.Port("fs-1") != 20490 {
			t.Errorf("snapshot %+v", s)
		}
		if _, known := s.FileSystems["fs-foreign"]; known {
			t.Error("claims can choose the other account's file system")
		}
		if got := api.Calls().Exists; got != 0 {
			t.Errorf("%d questions whether a file system exists", got)
		}
		api.Remove("fs-foreign")
		for _, id := range append(ours, "fs-3") {
			api.Put(fileSystem(id, "a"))
		}
		pass(2 * time.Minute)
		c.wantPorts(map[string]int{"fs-1": 20490, "fs-2": 20491, "fs-3": 20492})
		if got := strings.Join(c.newEvents(), "\n"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "FileSystemFound fs-3") || !strings.Contains(got, "IdentityLooksWrong of Installation has ended") {
			t.Errorf("events %q", got)
		}
	})
}

// TestAnAdministratorAcceptsAnotherAccount does what the event says.
func TestAnAdministratorAcceptsAnotherAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		api.SetSource("111111111111/us-east-1")
		c := start(t, api)
		api.Remove("fs-1")
		api.Put(fileSystem("fs-2", "a"))
		api.SetSource("222222222222/us-east-1")
		pass(5 * time.Minute)
		c.wantPorts(map[string]int{"fs-1": 20490})
		c.wantEvent("set account_and_region to 222222222222/us-east-1 in key efs-stunnel.yaml of ConfigMap efs-stunnel")
		object := c.configMap()
		object.Data[wellknown.TargetsKey] = strings.Replace(object.Data[wellknown.TargetsKey],
			"account_and_region: 111111111111/us-east-1", "account_and_region: 222222222222/us-east-1", 1)
		c.update(object)
		pass(time.Second)
		c.wantPorts(map[string]int{"fs-1": 20490, "fs-2": 20491})
		pass(5 * time.Minute)
		c.wantPorts(map[string]int{"fs-2": 20491})
	})
}

// TestTheOnlyFileSystemIsReplaced: an account and region that are known need no overlap.
func TestTheOnlyFileSystemIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		api.SetSource("111111111111/us-east-1")
		c := start(t, api)
		api.Remove("fs-1")
		api.Put(fileSystem("fs-2", "a"))
		pass(5 * time.Minute)
		c.wantPorts(map[string]int{"fs-2": 20491})
	})
}
