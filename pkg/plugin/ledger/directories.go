package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
)

// Ledgers lists the ledgers of file systems. A lost cluster that seems to live on one of them is an error;
// nil is none.
func (r Runner) Ledgers(ctx context.Context, fileSystems []string, lost *requests.Lost) (map[string][]requests.Owned, error) {
	var mu sync.Mutex
	ledgers := map[string][]requests.Owned{}
	err := each(fileSystems, func(id string) error {
		var ledger []requests.Owned
		end, err := r.Run(ctx, id, requests.Request{Do: requests.ListOwners, Lost: lost}, func(line requests.Line) {
			if line.Owned != nil {
				ledger = append(ledger, *line.Owned)
			}
		})
		mu.Lock()
		defer mu.Unlock()
		ledgers[id] = ledger
		return errors.Join(err, failure(end))
	})
	return ledgers, err
}

// Directories lists directories of a file system, and its ledger.
func (r Runner) Directories(ctx context.Context, fileSystem string, wanted requests.Directories) ([]requests.Directory, []requests.Owned, error) {
	var directories []requests.Directory
	var ledger []requests.Owned
	for _, paths := range pieces(wanted.Paths, len(wanted.Patterns) > 0) {
		ledger = nil // that of the last request
		request := requests.Directories{Paths: paths, Patterns: wanted.Patterns}
		end, err := r.Run(ctx, fileSystem, requests.Request{Do: requests.ListDirectories, Directories: &request}, func(line requests.Line) {
			switch {
			case line.Directory != nil:
				directories = append(directories, *line.Directory)
			case line.Owned != nil:
				ledger = append(ledger, *line.Owned)
			}
		})
		if err := errors.Join(err, failure(end)); err != nil {
			return nil, nil, fmt.Errorf("file system %s: %w", fileSystem, err)
		}
		wanted.Patterns = nil
	}
	return directories, ledger, nil
}

// DirectoriesAt lists the directories at paths, by file system.
func (r Runner) DirectoriesAt(ctx context.Context, paths map[string][]string) (map[string][]requests.Directory, error) {
	var mu sync.Mutex
	found := map[string][]requests.Directory{}
	err := each(slices.Sorted(maps.Keys(paths)), func(id string) error {
		directories, _, err := r.Directories(ctx, id, requests.Directories{Paths: paths[id]})
		mu.Lock()
		defer mu.Unlock()
		found[id] = directories
		return err
	})
	return found, err
}

// pieceBytes leaves room in a request for what is not in its list.
const pieceBytes = requests.MaxRequestBytes - 4<<10

// pieces splits a list so that each piece fits in a request. An empty list is a piece if it is wanted.
func pieces[T any](items []T, emptyToo bool) [][]T {
	if len(items) == 0 && emptyToo {
		return [][]T{nil}
	}
	var all [][]T
	size := 0
	for _, item := range items {
		data, _ := json.Marshal(item)                              // names and paths only
		length := len(data) + 1 + 5*bytes.Count(data, []byte("$")) // as Request.Encode writes it
		if len(all) == 0 || size+length > pieceBytes {
			all, size = append(all, nil), 0
		}
		last := len(all) - 1
		all[last], size = append(all[last], item), size+length
	}
	return all
}
