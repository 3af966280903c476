package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestSwapsReadTheLastValue, whichever way it was written.
func TestSwapsReadTheLastValue(t *testing.T) {
	file, page := openNew(t), newPage(t)
	swaps := []func(*os.File, int64) (int64, error){page.swapMapped, page.swapMapped, page.swap, page.swapMapped, page.swap}
	for i, swap := range swaps {
		if got, err := swap(file, int64(i)+1); got != int64(i) || err != nil {
			t.Errorf("swap %d got %d and %v", i, got, err)
		}
	}
}

// TestTornBlocksHaveNoValue, also those that end early.
func TestTornBlocksHaveNoValue(t *testing.T) {
	file, page := openNew(t), newPage(t)
	if err := page.write(file, 1); err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(blockSize / 2); err != nil {
		t.Fatal(err)
	}
	for _, swap := range []func(*os.File, int64) (int64, error){page.swapMapped, page.swap} {
		if _, err := swap(file, 2); !errors.Is(err, errTorn) {
			t.Errorf("got %v", err)
		}
	}
}

func openNew(t *testing.T) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func newPage(t *testing.T) block {
	t.Helper()
	page, err := newBlock()
	if err != nil {
		t.Fatal(err)
	}
	return page
}
