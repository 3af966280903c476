package directories

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// maxFile bounds what is read of a file of ours; they are some hundred bytes.
const maxFile = 64 << 10

// encode writes what a file of ours holds: JSON and a newline.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return out.Bytes(), err
}

// createFile makes a file that is on the server, whole, when it returns.
func createFile(folder *os.Root, name string, data []byte) error {
	file, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateFile)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return errors.Join(err, folder.Remove(name))
	}
	return nil
}

// readFile reads a file of ours; where is for messages.
func readFile(folder *os.Root, name, where string) ([]byte, error) {
	data, _, err := readFileTime(folder, name, where)
	return data, err
}

// readFileTime is readFile, and says when the server has written the file.
func readFileTime(folder *os.Root, name, where string) (data []byte, written time.Time, err error) {
	file, err := folder.Open(name)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading %s: %w", where, err)
	}
	defer file.Close()
	data, err = io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading %s: %w", where, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading %s: %w", where, err)
	}
	return data, info.ModTime(), nil
}

// writeFile puts a file in its place by a rename, so that nobody ever reads half of it, and
// what was there stays until then.
func (b *batch) writeFile(ctx context.Context, folder *os.Root, name, where string, data []byte) error {
	half := unique("file")
	if err := b.fs.beforeGrowing(ctx, "write "+where); err != nil {
		return err
	}
	if err := createFile(b.tmp, half, data); err != nil {
		return fmt.Errorf("writing %s: %w", where, err)
	}
	if err := b.fs.move(ctx, "place "+where, b.tmp, half, folder, name); err != nil {
		return fmt.Errorf("writing %s: %w", where, err) // the next batch empties tmp
	}
	return nil
}
