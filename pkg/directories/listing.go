package directories

import (
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
