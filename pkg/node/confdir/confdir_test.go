package confdir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/node/confdir"
)

func open(t *testing.T) (confdir.Dir, string) {
	t.Helper()
	folder := t.TempDir()
	dir, err := confdir.Open(filepath.Join(folder, "stunnel.conf"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, folder
}

func TestWriteReadRemove(t *testing.T) {
	dir, folder := open(t)
	for i, content := range []string{"one", "one", "two"} {
		file := dir.Spec("fs-1.fsap-2")
		if has := file.HasContent([]byte(content)); has != (i == 1) {
			t.Errorf("before writing %q: has it %t", content, has)
		}
		if err := file.Write([]byte(content)); err != nil {
			t.Errorf("writing %q: %v", content, err)
		}
	}
	if got, err := dir.Spec("fs-1.fsap-2").Read(); err != nil || string(got) != "two" {
		t.Errorf("got %q, %v", got, err)
	}
	info, err := os.Stat(filepath.Join(folder, "stunnel.conf-tunnel.fs-1.fsap-2.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want mode 0600", info, err)
	}
	for range 2 {
		if err := dir.Remove("fs-1.fsap-2"); err != nil {
			t.Errorf("removing: %v", err)
		}
	}
	if got, err := dir.Spec("fs-1.fsap-2").Read(); err != nil || got != nil {
		t.Errorf("got %q, %v after it was removed", got, err)
	}
}

func TestNamesListsSpecificationsOnly(t *testing.T) {
	dir, folder := open(t)
	for _, name := range []string{"fs-2", "fs-1.fsap-2", "status"} {
		if err := dir.Spec(name).Write(nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, write := range map[string]func([]byte) error{"table": dir.Table().Write, "state": dir.State().Write} {
		if err := write([]byte("x")); err != nil {
			t.Errorf("writing the %s: %v", name, err)
		}
	}
	for _, name := range []string{"stunnel.conf-status.json", "stunnel.conf.fs-1", "other-tunnel.fs-1.json",
		".stunnel.conf-tunnel.fs-1.json.new", "stunnel.conf-tunnel..json", "stunnel.conf-tunnel.fs-3"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(folder, "stunnel.conf-tunnel.fs-5.json")); err != nil {
		t.Fatal(err)
	}
	names, err := dir.Names()
	if diff := cmp.Diff([]string{"fs-1.fsap-2", "fs-2", "status"}, names); diff != "" || err != nil {
		t.Errorf("%v, names (-want +got):\n%s", err, diff)
	}
}

func TestInvalidNamesFail(t *testing.T) {
	dir, _ := open(t)
	for _, name := range []string{"", "../x", "a/b", "a.b", "A", "fs-1\n"} {
		if err := dir.Spec(name).Write(nil); err == nil {
			t.Errorf("%q was written", name)
		}
		if _, err := dir.Spec(name).Read(); err == nil {
			t.Errorf("%q was read", name)
		}
		if err := dir.Remove(name); err == nil {
			t.Errorf("%q was removed", name)
		}
	}
}

func TestLeftoverTemporaryFileIsReplaced(t *testing.T) {
	dir, folder := open(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Symlink(outside, filepath.Join(folder, ".stunnel.conf-tunnel.fs-1.json.new")); err != nil {
		t.Fatal(err)
	}
	if err := dir.Spec("fs-1").Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("the write followed a symbolic link out of the directory")
	}
}

func TestTableAndStateSurviveReopen(t *testing.T) {
	dir, folder := open(t)
	if text, err := dir.Table().Read(); text != nil || err != nil {
		t.Errorf("got %q, %v, want no table at first", text, err)
	}
	if err := dir.Table().Write([]byte("table")); err != nil {
		t.Fatal(err)
	}
	if err := dir.State().Write([]byte("state")); err != nil {
		t.Fatal(err)
	}
	again, err := confdir.Open(filepath.Join(folder, "stunnel.conf"))
	if err != nil {
		t.Fatal(err)
	}
	table, tableErr := again.Table().Read()
	state, stateErr := again.State().Read()
	if string(table) != "table" || string(state) != "state" || tableErr != nil || stateErr != nil {
		t.Errorf("got %q, %v and %q, %v", table, tableErr, state, stateErr)
	}
}

func TestOpenWithoutDirectoryFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"/no/such/directory/x", filepath.Join(file, "x")} {
		if _, err := confdir.Open(prefix); err == nil {
			t.Errorf("%s was opened", prefix)
		}
	}
}
