package server

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Titles of the programs, and their files.
const (
	ganeshaTitle  = "nfs-ganesha"
	ganeshaFile   = runFolder + "ganesha.conf"
	ticketsFolder = runFolder + "tickets"
	stunnelTitle  = "stunnel"
	stunnelFile   = runFolder + "stunnel.conf"
)

// ganeshaConfig returns Ganesha's configuration:
//   - NFSv4 only, on loopback, because stunnel is the only client;
//   - one export, and no pseudo file system above it, so that a client's root is the exported folder;
//   - a scope and an owner of its own, because otherwise a kernel's client takes two servers for two
//     paths to one and mixes them up;
//   - root stays root: mount Jobs make, give away and remove directories as root;
//   - numbers instead of names for owners, without the id mapper;
//   - no PR_SET_IO_FLUSHER, which needs CAP_SYS_RESOURCE.
func ganeshaConfig(disk disk, address string, o Options) string {
	return strings.NewReplacer(
		"@host@", address,
		"@port@", strconv.Itoa(o.GaneshaPort),
		"@seconds@", strconv.Itoa(int(o.GracePeriod/time.Second)),
		"@recovery@", disk.recovery,
		"@tickets@", ticketsFolder,
		"@id@", disk.id,
		"@export@", disk.export,
	).Replace(ganeshaTemplate)
}

const ganeshaTemplate = `# Written by efs-stunnel; changes are overwritten.
NFS_CORE_PARAM {
	NFS_Port = @port@;
	Bind_addr = @host@;
	Protocols = 4;
	Enable_NLM = false;
	Enable_RQUOTA = false;
	Enable_UDP = false;
	Allow_Set_Io_Flusher_Fail = true;
}
NFS_KRB5 {
	Active_krb5 = false;
	CCacheDir = "@tickets@";
}
NFSV4 {
	Grace_Period = @seconds@;
	Lease_Lifetime = @seconds@;
	Minor_Versions = 0, 1, 2;
	RecoveryBackend = fs;
	RecoveryRoot = "@recovery@";
	Server_Scope = "@id@";
	Server_Owner = "@id@";
	UseGetpwnam = true;
	Only_Numeric_Owners = true;
}
EXPORT {
	Export_Id = 1;
	Path = "@export@";
	Pseudo = /;
	Access_Type = RW;
	Squash = No_Root_Squash;
	SecType = sys;
	Protocols = 4;
	Transports = TCP;
	FSAL { Name = VFS; }
}
`

// stunnelConfig returns stunnel's configuration. The address that it accepts on is not used: stunnel inherits
// the socket.
func stunnelConfig(address string, o Options) string {
	var clients string
	if o.ClientCertificates {
		clients = fmt.Sprintf("verifyChain = yes\nCAfile = %s\n", clientsFile)
	}
	return strings.NewReplacer(
		"@connect@", address+":"+strconv.Itoa(o.GaneshaPort),
		"@pair@", pairFile,
		"@clients@", clients,
	).Replace(stunnelTemplate)
}

// stunnelTemplate has the timeouts in seconds. A client's stunnel closes an idle connection itself after
// 70 s; TIMEOUTidle is for clients that are gone.
const stunnelTemplate = `; Written by efs-stunnel; changes are overwritten.
foreground = yes
pid =
syslog = no
debug = info

[nfs]
accept = 127.0.0.1:1
connect = @connect@
cert = @pair@
key = @pair@
@clients@sslVersionMin = TLSv1.2
renegotiation = no
TIMEOUTbusy = 20
TIMEOUTclose = 0
TIMEOUTconnect = 5
TIMEOUTidle = 300
`
