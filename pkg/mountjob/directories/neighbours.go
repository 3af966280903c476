package directories

import (
	"context"
	"maps"
	"slices"
)

// first is an owner of a path, or whose data was retained there, or nil. Marks of retained data that
// a person has removed are dropped.
func (l *ledger) first(ctx context.Context, p string) (*entry, error) {
	n, err := l.node(ctx, p)
	if err != nil || len(n.entries) == 0 {
		return nil, err
	}
	all, err := l.entries(ctx, p)
	if err != nil {
		return nil, err
	}
	if !all[0].retained {
		return all[0], nil
	}
	there, err := l.batch.isThere(ctx, p)
	if err == nil && !there {
		return nil, l.dropAll(ctx, p, all)
	}
	return all[0], err
}

// above is an owner of a path strictly above p, or nil.
func (l *ledger) above(ctx context.Context, p string) (at string, e *entry, err error) {
	for _, ancestor := range ancestors(p) {
		if e, err = l.first(ctx, ancestor); err != nil || e != nil {
			return ancestor, e, err
		}
	}
	return "", nil, nil
}

// below is an owner of a path strictly below p, or nil.
func (l *ledger) below(ctx context.Context, p string) (at string, e *entry, err error) {
	n, err := l.node(ctx, p)
	if err != nil {
		return "", nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(n.folders)) {
		at = child(p, name)
		if e, err = l.first(ctx, at); err != nil || e != nil {
			return at, e, err
		}
		if at, e, err = l.below(ctx, at); err != nil || e != nil {
			return at, e, err
		}
	}
	return "", nil, nil
}

// each visits every owner at p and below.
func (l *ledger) each(ctx context.Context, p string, visit func(*entry)) error {
	entries, err := l.entries(ctx, p)
	if err != nil {
		return err
	}
	for _, e := range entries {
		visit(e)
	}
	n, err := l.node(ctx, p)
	if err != nil {
		return err
	}
	for name := range n.folders {
		if err := l.each(ctx, child(p, name), visit); err != nil {
			return err
		}
	}
	return nil
}

// ancestors are the paths strictly above p, the highest first, without the root.
func ancestors(p string) []string {
	var above []string
	for i := 1; i < len(p); i++ {
		if p[i] == '/' {
			above = append(above, p[:i])
		}
	}
	return above
}
