package directories

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// site is a path as an operation finds it.
type site struct {
	own      *entry      // of the operation's volume; nil
	others   []*entry    // those that leave come last
	retained []*entry    // whose data was retained; these are no owners any more
	info     fs.FileInfo // of the directory; nil
}

// owners reads who is at the operation's path.
func (b *batch) owners(ctx context.Context, op operations.Operation) (site, error) {
	entries, err := b.ledger.entries(ctx, op.Path)
	s := site{}
	for _, e := range entries {
		switch {
		case e.retained:
			s.retained = append(s.retained, e)
		case e.volume != op.Volume:
			s.others = append(s.others, e)
		case s.own == nil: // the live one comes first
			s.own = e
		}
	}
	return s, err
}

// survey reads who is there, and what. Retained data that is not there was removed by a person, and
// its marks go too.
func (b *batch) survey(ctx context.Context, op operations.Operation) (site, error) {
	s, err := b.owners(ctx, op)
	if err != nil {
		return site{}, err
	}
	s.info, err = b.data.look(ctx, op.Path)
	if err != nil || s.info != nil || len(s.retained) == 0 {
		return s, err
	}
	given, err := b.resumeOthers(ctx, op, s)
	if err != nil {
		return site{}, err
	}
	if given {
		s.info, err = b.data.look(ctx, op.Path)
		return s, err
	}
	err = b.ledger.dropAll(ctx, op.Path, s.retained)
	s.retained = nil
	return s, err
}

// gid is the group that belongs to the directory, as its owners know it.
func (s site) gid() int {
	if s.own != nil && s.own.GID != 0 {
		return s.own.GID
	}
	for _, other := range s.all() {
		if other.GID != 0 {
			return other.GID
		}
	}
	return 0
}

// all are the other owners, and whose data was retained.
func (s site) all() []*entry { return slices.Concat(s.others, s.retained) }

// setup makes the operation's volume an owner of its path, and the path a directory.
//
//	owner entry  directory   what is done
//	none         none        entry, directory
//	none         there       entry; the directory stays as it is
//	own          none        directory (a run that died, or somebody removed it)
//	own          there       nothing
func (b *batch) setup(ctx context.Context, op operations.Operation) (operations.Result, error) {
	s, err := b.survey(ctx, op)
	if err != nil {
		return operations.Result{}, err
	}
	if err := b.mayTake(ctx, op, s); err != nil {
		return operations.Result{}, err
	}
	gid, err := b.gidFor(ctx, op, s)
	if err != nil {
		return operations.Result{}, err
	}
	e, err := b.own(ctx, op, s, gid)
	if err != nil {
		return operations.Result{}, err
	}
	if s.info == nil {
		if err := b.makeVolume(ctx, op, gid); err != nil {
			return operations.Result{}, b.withdraw(ctx, op, s, e, err)
		}
	}
	return operations.Result{State: operations.Done, GID: gid}, nil
}

// mayTake refuses paths that the volume must not have.
func (b *batch) mayTake(ctx context.Context, op operations.Operation, s site) error {
	if err := b.notNested(ctx, op); err != nil {
		return err
	}
	if s.own != nil && !s.own.isOf(op.Owner) && (!op.Adopt || s.own.Cluster != op.Cluster) {
		// Adopted volumes have any name; a cluster gives it anew only when the old volume is gone.
		return refuse(operations.VolumeNameTaken, "%s is in the ledger as %s: rename this volume, or release that one", quote(op.Path), s.own).of(s.own.owner())
	}
	for _, other := range s.all() {
		if err := b.mayShare(op, other); err != nil {
			return err
		}
	}
	switch {
	case op.Adopt && s.info == nil:
		return refuse(operations.NotFound, "%s is not there, so it cannot be taken over as it is", quote(op.Path))
	case op.Adopt || s.info == nil || s.own != nil || len(s.all()) > 0 || !op.RefuseExisting:
		return nil
	}
	return b.wantEmpty(ctx, op.Path)
}

func (b *batch) notNested(ctx context.Context, op operations.Operation) error {
	at, e, err := b.ledger.above(ctx, op.Path)
	if err == nil && e == nil {
		at, e, err = b.ledger.below(ctx, op.Path)
	}
	if err != nil || e == nil {
		return err
	}
	return refuse(operations.Nested, "%s and %s, which %s, would be one inside the other: choose a path that is neither above nor below", quote(op.Path), quote(at), e.hold()).of(e.owner())
}

// mayShare also counts owners that leave, and retained data: their data is still there. Owners of
// several classes may share within their namespace, but what no volume in use has any more goes to
// claims of its own class only.
func (b *batch) mayShare(op operations.Operation, other *entry) error {
	reason, message := operations.Reason(""), ""
	switch {
	case other.Cluster != op.Cluster && !op.ShareAcrossClusters:
		reason, message = operations.OwnedByOtherCluster, "choose another name, or set share_across_clusters in the class if both shall use it"
	case op.ShareAcrossNamespaces:
	case other.Namespace != op.Namespace:
		reason, message = operations.OwnedByOtherNamespace, "choose another name, or set share_across_namespaces in the class if both shall use it"
	case other.isOfEarlierNamespace(op.Owner):
		reason, message = operations.OwnedByOtherNamespace, madeAgain(op.Namespace)
	case b.isRemembered(op, other) && other.Class != "" && op.Class != "" && other.Class != op.Class:
		reason, message = operations.OwnedByOtherClass, fmt.Sprintf("its class was %s: use that class, choose another name, or set share_across_namespaces in the class if it shall have such data", quote(other.Class))
	}
	if reason == "" {
		return nil
	}
	return refuse(reason, "%s %s: %s", quote(op.Path), other.hold(), message).of(other.owner())
}

// isRemembered says that no volume in use has an entry's data, as far as the manager knows. It knows
// its own cluster, and nothing yet of what the same batch sets up.
func (b *batch) isRemembered(op operations.Operation, other *entry) bool {
	return other.retained || other.Cluster == op.Cluster && !op.Joins && !b.setUp[other.volume]
}

// isOfEarlierNamespace says that the namespace of the entry was deleted, and another one made with
// its name. Clusters give the same names, with uids of their own.
func (e *entry) isOfEarlierNamespace(owner operations.Owner) bool {
	return e.Cluster == owner.Cluster && e.Namespace == owner.Namespace &&
		e.NamespaceUID != "" && owner.NamespaceUID != "" && e.NamespaceUID != owner.NamespaceUID
}

func madeAgain(namespace string) string {
	return fmt.Sprintf(`namespace %s was deleted and made again since: choose another name, or set share_across_namespaces: "true" in the class if claims of the new namespace shall have the data of the old one`, quote(namespace))
}

func (b *batch) wantEmpty(ctx context.Context, p string) error {
	folder, err := b.data.folder(ctx, p)
	if err != nil {
		return err
	}
	empty, err := isEmpty(folder, p)
	if err != nil || empty {
		return err
	}
	return refuse(operations.NotEmptyUnowned, "%s has content and no owner, and the class has adopt_existing \"false\": choose another name, move the content away, or allow it in the class", quote(p))
}

// own enters the volume as an owner, unless it is one.
func (b *batch) own(ctx context.Context, op operations.Operation, s site, gid int) (*entry, error) {
	if s.own != nil && !s.own.isOf(op.Owner) { // mayTake says that it is gone
		if err := b.ledger.retain(ctx, op.Path, s.own); err != nil {
			return nil, err
		}
		s.own = nil
	}
	e := newEntry(op.Owner, b.fs.now())
	e.GID = gid
	e.Made = s.info == nil || op.Adopt && op.Made
	if s.own != nil {
		e.unknown = s.own.unknown
		e.Made = e.Made || s.own.Made
		e.RestoredFrom = s.own.RestoredFrom
		e.NamespaceUID = cmp.Or(e.NamespaceUID, s.own.NamespaceUID)
		e.Class = cmp.Or(e.Class, s.own.Class)
		if !s.own.leaving { // one that leaves and returns begins a new life
			e.When = s.own.When
		}
	}
	if s.own == nil || s.own.leaving || !s.own.same(e) {
		if err := b.ledger.write(ctx, op.Path, e); err != nil {
			return nil, err
		}
	}
	return e, b.stay(ctx, op)
}

// stay takes back a cleanup that had begun. It is looked for by name: an earlier setup may have
// died between the two entries.
func (b *batch) stay(ctx context.Context, op operations.Operation) error {
	n, err := b.ledger.node(ctx, op.Path)
	if err != nil {
		return err
	}
	leaving := &entry{volume: op.Volume, leaving: true}
	if _, ok := n.entries[leaving.fileName()]; !ok {
		return nil
	}
	return b.ledger.drop(ctx, op.Path, leaving)
}

func (e *entry) same(other *entry) bool {
	return e.owner() == other.owner() && e.GID == other.GID && e.Made == other.Made &&
		e.NamespaceUID == other.NamespaceUID && e.Class == other.Class
}

// makeVolume makes the directory, and those on the way to it.
func (b *batch) makeVolume(ctx context.Context, op operations.Operation, gid int) error {
	mode, err := op.UnixMode(gid)
	if err != nil {
		return err
	}
	made := shape{mode: mode, uid: op.UID, gid: op.GID}
	if gid != 0 {
		made.gid = gid
	}
	parent, err := b.data.ensure(ctx, path.Dir(op.Path))
	if err != nil {
		return err
	}
	return b.makeDirectory(ctx, parent, path.Base(op.Path), op.Path, made)
}

// withdraw takes the new entry back when the directory was refused, so that a path that nobody
// has keeps nobody else away. A run that was stopped leaves it to the next one, and so does one
// whose rename has no answer: the directory may be there, and would have no owner.
func (b *batch) withdraw(ctx context.Context, op operations.Operation, s site, e *entry, cause error) error {
	if s.own != nil || !isRefusal(cause) {
		return cause
	}
	if err := b.ledger.drop(ctx, op.Path, e); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}
