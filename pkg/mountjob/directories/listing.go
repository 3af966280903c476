package directories

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Directories are listed by name only. ReadDir on a handle of an os.Root looks at each entry to
// know its type, one after the other, even where the kernel has said it: over NFS that is a round
// trip or more for each. So what something is must follow from its name, or from what is done
// with it.

// names lists an open directory.
func names(folder *os.Root, where string) ([]string, error) {
	return someNames(folder, where, -1)
}

// list is names for directories that may be large: it ends when ctx does.
func (f *FileSystem) list(ctx context.Context, folder *os.Root, where string) (all []string, err error) {
	if err := f.before(ctx, "list "+where); err != nil {
		return nil, err
	}
	list, err := folder.Open(".")
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", where, err)
	}
	defer list.Close()
	for ctx.Err() == nil {
		some, err := list.Readdirnames(listedAtOnce)
		all = append(all, some...)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", where, err)
		}
	}
	return nil, &stopError{context.Cause(ctx)}
}

// listedAtOnce is how many names are read before the time is looked at again.
const listedAtOnce = 1024

// isEmpty says whether an open directory holds nothing.
func isEmpty(folder *os.Root, where string) (bool, error) {
	first, err := someNames(folder, where, 1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return err == nil && len(first) == 0, err
}

func someNames(folder *os.Root, where string, most int) ([]string, error) {
	list, err := folder.Open(".")
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", where, err)
	}
	defer list.Close()
	found, err := list.Readdirnames(most)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", where, err)
	}
	return found, nil
}
