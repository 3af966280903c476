package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// TrashItem is a directory in the trash of a file system.
type TrashItem struct {
	FileSystem string `json:"fileSystem"`
	requests.Trashed
}

// atOnce is how many file systems are asked at once.
const atOnce = 8

// each asks several file systems. One that does not answer does not keep the others from it.
func each(fileSystems []string, ask func(fileSystem string) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	errs := make([]error, len(fileSystems))
	for i, id := range fileSystems {
		group.Go(func() error {
			if err := ask(id); err != nil {
				errs[i] = fmt.Errorf("file system %s: %w", id, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	return logging.Errors(errs...)
}

// ListTrash lists the trash of file systems, each in the order of deletion. With an error the list has what
// others have answered.
func (r Runner) ListTrash(ctx context.Context, fileSystems []string) ([]TrashItem, error) {
	var mu sync.Mutex
	var items []TrashItem
	err := each(fileSystems, func(id string) error {
		end, err := r.Run(ctx, id, requests.Request{Do: requests.ListTrash}, func(line requests.Line) {
			mu.Lock()
			defer mu.Unlock()
			if line.Trashed != nil {
				items = append(items, TrashItem{id, *line.Trashed})
			}
		})
		return errors.Join(err, failure(end))
	})
	slices.SortFunc(items, func(a, b TrashItem) int {
		return cmp.Or(cmp.Compare(a.FileSystem, b.FileSystem), a.Deleted.Compare(b.Deleted), cmp.Compare(a.Slot, b.Slot))
	})
	return items, err
}

func failure(end requests.End) error {
	if end.Error == "" {
		return nil
	}
	return errors.New(end.Error)
}

// EmptyTrash removes what is selected on each file system, and calls ended for each that has answered.
func (r Runner) EmptyTrash(ctx context.Context, selections map[string]requests.Selection, ended func(fileSystem string, end requests.End)) error {
	var mu sync.Mutex
	return each(slices.Sorted(maps.Keys(selections)), func(id string) error {
		selection := selections[id]
		end, err := r.Run(ctx, id, requests.Request{Do: requests.EmptyTrash, Selection: &selection}, func(requests.Line) {})
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			ended(id, end)
		}
		return errors.Join(err, failure(end))
	})
}

// TrashRows are a table of the trash. The cluster is this one.
func TrashRows(items []TrashItem, cluster string, now time.Time) [][]string {
	rows := [][]string{{"FILE SYSTEM", "CLAIM", "CLAIM UID", "DELETED", "KEPT UNTIL", "CLUSTER", "PATH", "VOLUME"}}
	for _, item := range items {
		if item.Unknown {
			rows = append(rows, []string{item.FileSystem, "unknown", "", "", "a person removes it", "", "", item.Slot})
			continue
		}
		rows = append(rows, []string{
			item.FileSystem, item.Namespace + "/" + item.Claim, item.ClaimUID, item.Deleted.UTC().Format(time.RFC3339),
			item.until(now), clusterName(item.Cluster, cluster), item.Path, item.Volume,
		})
	}
	return rows
}

func (item TrashItem) until(now time.Time) string {
	switch {
	case item.Forever:
		return "forever"
	case !item.Due.After(now):
		return "the next sweep"
	}
	return item.Due.UTC().Format(time.RFC3339)
}

func clusterName(uid, own string) string {
	if uid == own {
		return "this"
	}
	return uid
}

// TrashChoice is what a user means by the arguments of a command.
type TrashChoice struct {
	Cluster   string
	Namespace string   // "" is all
	Claims    []string // names, or uids; none is all
}

// Select finds what is chosen. A claim that has nothing in the trash is an error.
func (c TrashChoice) Select(items []TrashItem) ([]TrashItem, error) {
	var chosen []TrashItem
	found := map[string]bool{}
	for _, item := range items {
		if item.Unknown || item.Cluster != c.Cluster || c.Namespace != "" && item.Namespace != c.Namespace {
			continue
		}
		if len(c.Claims) == 0 || slices.Contains(c.Claims, item.Claim) || slices.Contains(c.Claims, item.ClaimUID) {
			chosen = append(chosen, item)
			found[item.Claim], found[item.ClaimUID] = true, true
		}
	}
	missing := slices.DeleteFunc(slices.Clone(c.Claims), func(claim string) bool { return found[claim] })
	if len(missing) > 0 {
		return nil, fmt.Errorf("the trash has nothing of %s%s: see kubectl efs-stunnel trash list", strings.Join(missing, ", "), c.where())
	}
	return chosen, nil
}

func (c TrashChoice) where() string {
	if c.Namespace == "" {
		return ""
	}
	return " in namespace " + c.Namespace
}

// Selections are the requests that remove what was chosen, by file system, and nothing that came to the trash
// since it was listed.
func (c TrashChoice) Selections(chosen []TrashItem) map[string]requests.Selection {
	selections := map[string]requests.Selection{}
	for _, item := range chosen {
		s := selections[item.FileSystem]
		s.Cluster, s.Namespace = c.Cluster, c.Namespace
		if len(c.Claims) > 0 && !slices.Contains(s.Claims, item.ClaimUID) {
			s.Claims = append(s.Claims, item.ClaimUID)
		}
		if item.Deleted.After(s.Until) {
			s.Until = item.Deleted
		}
		selections[item.FileSystem] = s
	}
	return selections
}

// InNamespace are the directories of the claims of a namespace.
func InNamespace(items []TrashItem, namespace string) []TrashItem {
	return slices.DeleteFunc(slices.Clone(items), func(item TrashItem) bool { return item.Unknown || item.Namespace != namespace })
}
