package ganesha

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// User is the user that an export puts in place of every client's user.
type User struct{ UID, GID uint32 }

// Export is the directory that one Ganesha serves.
type Export struct {
	Name string // file system id or access point id
	Dir  string // the root directory of clients
	User *User  // nil: users stay who they are, root included
}

// files are the files and folders of one Ganesha, which shares none with another.
type files struct{ dir, config, log, pid, recovery, tickets string }

// config returns Ganesha's configuration:
//   - NFSv4 only, on loopback, because the terminator is the only client;
//   - a scope and an owner of its own, because otherwise a kernel's client takes two Ganeshas for two
//     paths to one server and mixes them up;
//   - a lease of a minute, because an emulated node on a busy machine cannot renew one of seconds in
//     time, and its kernel then fails opens with EIO, also on hard mounts; a grace period as long, in
//     which every client can reconnect after a restart (without clients it ends at once);
//   - numbers instead of names for owners, without the id mapper, whose plugins would have to be in
//     /usr/lib;
//   - no PR_SET_IO_FLUSHER, which needs CAP_SYS_RESOURCE;
//   - every folder that would be in /run or /var by default.
func config(r Root, e Export, f files, address string) string {
	host, port, _ := net.SplitHostPort(address) // made by freeAddress
	squash := "Squash = No_Root_Squash;"
	if e.User != nil {
		squash = fmt.Sprintf("Squash = All; Anonymous_Uid = %d; Anonymous_Gid = %d;", e.User.UID, e.User.GID)
	}
	return strings.NewReplacer(
		"@host@", host,
		"@port@", port,
		"@plugins@", quote(r.path(plugins)),
		"@tickets@", quote(f.tickets),
		"@recovery@", quote(f.recovery),
		"@name@", quote(e.Name),
		"@dir@", quote(e.Dir),
		"@squash@", squash,
	).Replace(template)
}

const template = `NFS_CORE_PARAM {
	NFS_Port = @port@;
	Bind_addr = @host@;
	Protocols = 4;
	Enable_NLM = false;
	Enable_RQUOTA = false;
	Enable_UDP = false;
	Plugins_Dir = @plugins@;
	Allow_Set_Io_Flusher_Fail = true;
}
NFS_KRB5 {
	Active_krb5 = false;
	CCacheDir = @tickets@;
}
NFSV4 {
	Grace_Period = 60;
	Lease_Lifetime = 60;
	Minor_Versions = 0, 1, 2;
	RecoveryBackend = fs;
	RecoveryRoot = @recovery@;
	Server_Scope = @name@;
	Server_Owner = @name@;
	UseGetpwnam = true;
	Only_Numeric_Owners = true;
}
EXPORT {
	Export_Id = 1;
	Path = @dir@;
	Pseudo = /;
	Access_Type = RW;
	@squash@
	SecType = sys;
	Protocols = 4;
	Transports = TCP;
	FSAL { Name = VFS; }
}
`

func quote(s string) string { return `"` + s + `"` }

func filesOf(stateDir, logDir, name string) files {
	dir := filepath.Join(stateDir, name)
	return files{
		dir:      dir,
		config:   filepath.Join(dir, "ganesha.conf"),
		log:      filepath.Join(logDir, process(name)+".log"),
		pid:      filepath.Join(dir, "pid"),
		recovery: filepath.Join(dir, "recovery"),
		tickets:  filepath.Join(dir, "tickets"),
	}
}

// process returns the name of an export's process record.
func process(name string) string { return "ganesha-" + name }
