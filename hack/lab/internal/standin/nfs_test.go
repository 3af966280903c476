package standin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

// The numbers of ONC RPC (RFC 5531) and NFSv4.0 (RFC 7530) that the tests use.
const (
	authSys   = 1
	opCreate  = 6
	opLookup  = 15
	opParent  = 16 // LOOKUPP
	opRoot    = 24 // PUTROOTFH
	directory = 2
	nfsOK     = 0
	nfsNoEnt  = 2
	nfsAccess = 13
)

// xdr appends to an XDR encoding.
type xdr []byte

func (x xdr) words(list ...uint32) xdr {
	for _, w := range list {
		x = binary.BigEndian.AppendUint32(x, w)
	}
	return x
}

func (x xdr) text(s string) xdr {
	x = append(x.words(uint32(len(s))), s...)
	return append(x, make([]byte, (4-len(s)%4)%4)...)
}

// in returns the operations that look up a folder below the root.
func in(folders ...string) []xdr {
	ops := []xdr{xdr{}.words(opRoot)}
	for _, f := range folders {
		ops = append(ops, xdr{}.words(opLookup).text(f))
	}
	return ops
}

// mkdir is in, and the operation that makes a folder there, with default attributes.
func mkdir(name string, folders ...string) []xdr {
	return append(in(folders...), xdr{}.words(opCreate, directory).text(name).words(0, 0))
}

// compound executes operations as a user, whose group has the same number, and returns the NFS status of
// the first that fails.
func compound(conn net.Conn, user uint32, ops []xdr) (status uint32, err error) {
	const xid = 1
	credentials := xdr{}.words(0).text("node").words(user, user, 0)
	call := xdr{}.words(xid, 0, 2, 100003, 4, 1, authSys).text(string(credentials)).words(0, 0).text("").words(0, uint32(len(ops)))
	for _, op := range ops {
		call = append(call, op...)
	}
	if _, err := conn.Write(append(xdr{}.words(1<<31|uint32(len(call))), call...)); err != nil {
		return 0, err
	}
	var mark [4]byte
	if _, err := io.ReadFull(conn, mark[:]); err != nil {
		return 0, err
	}
	reply := make([]byte, binary.BigEndian.Uint32(mark[:])&^(1<<31))
	if _, err := io.ReadFull(conn, reply); err != nil {
		return 0, err
	}
	const statusAt = 24 // after transaction, type, accepted, verifier (2), state
	if len(reply) < statusAt+4 || binary.BigEndian.Uint32(reply[8:]) != 0 || binary.BigEndian.Uint32(reply[20:]) != 0 {
		return 0, fmt.Errorf("call was not accepted: %x", reply)
	}
	return binary.BigEndian.Uint32(reply[statusAt:]), nil
}

// checkAccessPoint checks with the real server that an access point's root directory and user apply to all
// its clients, including root, and to no other clients.
func (l *lab) checkAccessPoint(t *testing.T, point inventory.AccessPoint) {
	t.Helper()
	dir := l.Path("efs", "data", shared)
	if err := os.Mkdir(filepath.Join(dir, "team", "private"), 0o700); err != nil { // root's
		t.Fatal(err)
	}
	whole := mountauthtest.Client{FileSystemID: shared, IAM: l.signed()}
	part := mountauthtest.Client{FileSystemID: shared, AccessPointID: point.ID, IAM: l.signed()}
	tests := map[string]struct {
		client mountauthtest.Client
		user   uint32
		ops    []xdr
		want   uint32
	}{
		"root becomes the user":                {part, 0, mkdir("by-root"), nfsOK},
		"others become the user":               {part, 99, mkdir("by-another"), nfsOK},
		"root may not do what the user cannot": {part, 0, mkdir("folder", "private"), nfsAccess},
		"nothing is above the root":            {part, 0, append(in(), xdr{}.words(opParent)), nfsNoEnt},
		"the root is not the file system's":    {part, 0, in("team"), nfsNoEnt},
		"the file system has the folder":       {whole, 0, in("team", "private"), nfsOK},
		"root stays root":                      {whole, 0, mkdir("by-root"), nfsOK},
		"others stay who they are":             {whole, 99, mkdir("by-another"), nfsAccess},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := compound(l.dialAs(t, "10.90.1.200", tt.client), tt.user, tt.ops)
			if err != nil || got != tt.want {
				t.Errorf("NFS status %d, %v; want %d", got, err, tt.want)
			}
		})
	}
	for folder, want := range map[string]uint32{"team/by-root": 1234, "team/by-another": 1234, "by-root": 0} {
		if uid, err := owner(filepath.Join(dir, folder)); err != nil || uid != want {
			t.Errorf("owner of %s is %d, %v; want %d", folder, uid, err, want)
		}
	}
}

func owner(file string) (uint32, error) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("no owner")
	}
	return stat.Uid, nil
}
