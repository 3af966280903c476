package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
)

// The numbers of ONC RPC (RFC 5531) and NFSv4.0 (RFC 7530) that the tests use.
const (
	opCreate  = 6
	opGetAttr = 9
	opGetFH   = 10
	opLookup  = 15
	opLookupP = 16
	opPutFH   = 22
	opRootFH  = 24
	opRead    = 25
	opRemove  = 28
	opRename  = 29
	opSaveFH  = 32
	opSetAttr = 34
	opWrite   = 38

	nfsOK     = 0
	nfsNoEnt  = 2
	nfsAccess = 13

	attrMode, attrOwner, attrGroup, attrTotal = 33, 36, 37, 44
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

func root() xdr              { return xdr{}.words(opRootFH) }
func lookup(name string) xdr { return xdr{}.words(opLookup).text(name) }
func remove(name string) xdr { return xdr{}.words(opRemove).text(name) }
func lookupParent() xdr      { return xdr{}.words(opLookupP) }
func getHandle() xdr         { return xdr{}.words(opGetFH) }
func putHandle(h []byte) xdr { return xdr{}.words(opPutFH).text(string(h)) }

// read reads the beginning of a file without opening it: the state id is that of anonymous reads.
func read() xdr { return xdr{}.words(opRead, 0, 0, 0, 0, 0, 0, 100) }

func getType() xdr { return xdr{}.words(opGetAttr, 1, 1<<1) }

func totalSpace() xdr { return xdr{}.words(opGetAttr, 2, 0, 1<<(attrTotal-32)) }

// mkdir makes a directory for its owner only.
func mkdir(name string) xdr {
	const directory, mode = 2, 0o700
	return xdr{}.words(opCreate, directory).text(name).words(2, 0, 1<<(attrMode-32)).text(string(xdr{}.words(mode)))
}

func chown(uid, gid int) xdr {
	owners := xdr{}.text(strconv.Itoa(uid)).text(strconv.Itoa(gid))
	return xdr{}.words(opSetAttr, 0, 0, 0, 0, 2, 0, 1<<(attrOwner-32)|1<<(attrGroup-32)).text(string(owners))
}

func chmod(mode uint32) xdr {
	return xdr{}.words(opSetAttr, 0, 0, 0, 0, 2, 0, 1<<(attrMode-32)).text(string(xdr{}.words(mode)))
}

// result is the status of the first operation that failed, and what the last operation returned.
type result struct {
	status uint32
	last   []byte
}

// text returns the opaque value at the end of a result of read or getHandle.
func (r result) text(t *testing.T, before int) []byte {
	t.Helper()
	if r.status != nfsOK || len(r.last) < before+4 {
		t.Fatalf("got NFS status %d with %d bytes", r.status, len(r.last))
	}
	length := int(binary.BigEndian.Uint32(r.last[before:]))
	return r.last[before+4 : before+4+length]
}

func (r result) handle(t *testing.T) []byte  { t.Helper(); return r.text(t, 0) }
func (r result) content(t *testing.T) []byte { t.Helper(); return r.text(t, 4) } // after the end-of-file mark

// compound executes operations as a user, whose group has the same number. All but the last one must be of
// those whose results have no more than a status.
func compound(conn net.Conn, user uint32, ops ...xdr) (result, error) {
	const xid = 7
	credentials := xdr{}.words(0).text("node").words(user, user, 0)
	call := xdr{}.words(xid, 0, 2, 100003, 4, 1, 1).text(string(credentials)).words(0, 0).text("").words(0, uint32(len(ops)))
	for _, op := range ops {
		call = append(call, op...)
	}
	if _, err := conn.Write(append(xdr{}.words(1<<31|uint32(len(call))), call...)); err != nil {
		return result{}, err
	}
	var mark [4]byte
	if _, err := io.ReadFull(conn, mark[:]); err != nil {
		return result{}, err
	}
	reply := make([]byte, binary.BigEndian.Uint32(mark[:])&^(1<<31))
	if _, err := io.ReadFull(conn, reply); err != nil {
		return result{}, err
	}
	const statusAt, tag, each = 24, 4, 8 // the status comes after transaction, type, accepted, verifier (2), state
	if len(reply) < statusAt+4 || binary.BigEndian.Uint32(reply[8:]) != 0 || binary.BigEndian.Uint32(reply[20:]) != 0 {
		return result{}, fmt.Errorf("the call was not accepted: %x", reply)
	}
	r := result{status: binary.BigEndian.Uint32(reply[statusAt:])}
	if at := statusAt + 4 + tag + 4 + each*len(ops); r.status == nfsOK && at <= len(reply) {
		r.last = reply[at:]
	}
	return r, nil
}
