package server

import (
	"log/slog"
	"testing"
)

// TestParseGanesha has lines of NFS-Ganesha 6.5.
func TestParseGanesha(t *testing.T) {
	const head = "28/11/2026 09:04:47 : epoch 6b0a990c : nfs-server-0 : ganesha.nfsd-25926[main] "
	for _, tt := range []struct {
		line  string
		level slog.Level
		text  string
	}{
		{head + "nfs_start_grace :STATE :EVENT :NFS Server Now IN GRACE, duration 60", slog.LevelDebug, "nfs_start_grace :STATE :NFS Server Now IN GRACE, duration 60"},
		{head + "populate_posix_file_systems :FSAL :CRIT :Error 2 in setmntent(/etc/mtab): No such file or directory", slog.LevelError, "populate_posix_file_systems :FSAL :Error 2 in setmntent(/etc/mtab): No such file or directory"},
		{head + "main :NFS STARTUP :FATAL :Fatal errors.  Server exiting...", slog.LevelError, "main :NFS STARTUP :Fatal errors.  Server exiting..."},
		{head + "main :NFS STARTUP :WARN :No export entries found in configuration file !!!", slog.LevelWarn, "main :NFS STARTUP :No export entries found in configuration file !!!"},
		{head + "gsh_dbus_pkginit :DBUS :CRIT :dbus_bus_get failed (no bus)", slog.LevelDebug, "gsh_dbus_pkginit :DBUS :dbus_bus_get failed (no bus)"},
		{head + "main :MAIN :WARN :Failed to set PR_SET_IO_FLUSHER due to EPERM, ignoring...", slog.LevelDebug, "main :MAIN :Failed to set PR_SET_IO_FLUSHER due to EPERM, ignoring..."},
		{"ganesha.nfsd: error while loading shared libraries", slog.LevelWarn, "ganesha.nfsd: error while loading shared libraries"},
	} {
		if level, text := parseGanesha(tt.line); level != tt.level || text != tt.text {
			t.Errorf("got %s %q, want %s %q", level, text, tt.level, tt.text)
		}
	}
}

func TestServerWithoutExportIsOfNoUse(t *testing.T) {
	if !servesNothing("main :NFS STARTUP :No export entries found in configuration file !!!") || servesNothing("nfs_start_grace :STATE :NFS Server Now IN GRACE") {
		t.Error("the line without an export is not told from others")
	}
}
