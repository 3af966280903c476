package requests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// Trashed is a directory in the trash. All times are the file server's.
type Trashed struct {
	Slot         string    `json:"slot"` // its name in the trash
	Volume       string    `json:"volume,omitempty"`
	Path         string    `json:"path,omitempty"` // where it was; empty when the server was full then
	Cluster      string    `json:"cluster,omitempty"`
	Namespace    string    `json:"namespace,omitempty"`
	NamespaceUID string    `json:"namespaceUID,omitempty"`
	Class        string    `json:"class,omitempty"`
	Claim        string    `json:"claim,omitempty"`
	ClaimUID     string    `json:"claimUID,omitempty"`
	Deleted      time.Time `json:"deleted,omitzero"`
	Due          time.Time `json:"due,omitzero"` // when it may be removed
	Forever      bool      `json:"forever,omitempty"`
	// Unknown says that no record says whose it was. It stays until a person removes it.
	Unknown bool `json:"unknown,omitempty"`
}

// Owned is an entry of the ledger.
type Owned struct {
	Path         string    `json:"path"`
	Volume       string    `json:"volume"`
	Cluster      string    `json:"cluster,omitempty"`
	Namespace    string    `json:"namespace,omitempty"`
	NamespaceUID string    `json:"namespaceUID,omitempty"`
	Class        string    `json:"class,omitempty"`
	Claim        string    `json:"claim,omitempty"`
	ClaimUID     string    `json:"claimUID,omitempty"`
	GID          int       `json:"gid,omitempty"`
	Made         bool      `json:"made,omitempty"`  // the directory was made for a volume
	Reads        bool      `json:"reads,omitempty"` // Namespace and Class are the owner's, whose directory Claim reads
	Since        time.Time `json:"since,omitzero"`
	Leaving      bool      `json:"leaving,omitempty"`    // its cleanup has begun
	Retained     bool      `json:"retained,omitempty"`   // a mark of retained data, which is no owner any more
	Unreadable   bool      `json:"unreadable,omitempty"` // Volume is the name of its file then
	TakenFrom    string    `json:"takenFrom,omitempty"`  // the cluster from which the volume was taken over
	// Of a release that was no dry run.
	Released bool   `json:"released,omitempty"`
	Problem  string `json:"problem,omitempty"`
}

// Line is one of an answer; one of its fields is set.
type Line struct {
	Trashed   *Trashed   `json:"trashed,omitempty"`
	Owned     *Owned     `json:"owned,omitempty"`
	Directory *Directory `json:"directory,omitempty"`
	Adopted   *Adopted   `json:"adopted,omitempty"`
	End       *End       `json:"end,omitempty"`
}

// End is the last line of an answer.
type End struct {
	Lines int               `json:"lines"` // how many there are before it
	Swept *operations.Swept `json:"swept,omitempty"`
	// Stopped says that the Job's time was over first. What is left is done by the next request.
	Stopped bool   `json:"stopped,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Writer writes an answer.
type Writer struct {
	out   io.Writer
	lines int
}

// NewWriter makes a Writer of lines that are written whole, each with one call.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Trashed writes a line.
func (w *Writer) Trashed(t Trashed) error { return w.write(Line{Trashed: &t}) }

// Owned writes a line.
func (w *Writer) Owned(o Owned) error { return w.write(Line{Owned: &o}) }

// Directory writes a line.
func (w *Writer) Directory(d Directory) error { return w.write(Line{Directory: &d}) }

// Adopted writes a line.
func (w *Writer) Adopted(a Adopted) error { return w.write(Line{Adopted: &a}) }

// End writes the last line.
func (w *Writer) End(end End) error {
	end.Lines = w.lines
	return w.write(Line{End: &end})
}

func (w *Writer) write(line Line) error {
	data, err := json.Marshal(line)
	if err == nil {
		_, err = w.out.Write(append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	w.lines++
	return nil
}

// ErrIncomplete is the error for an answer of which lines are missing: the pod was killed, or its log was
// rotated before it was read.
var ErrIncomplete = errors.New("the answer is incomplete")

// maxLineBytes is longer than any line of a Writer, whose values are limited.
const maxLineBytes = 256 << 10

// Read reads an answer from the log of a pod, among lines of other forms.
func Read(log io.Reader, use func(Line)) (End, error) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLineBytes)
	count := 0
	for lines.Scan() {
		if !bytes.HasPrefix(lines.Bytes(), []byte("{")) {
			continue
		}
		var line Line
		switch err := json.Unmarshal(lines.Bytes(), &line); {
		case err != nil:
			return End{}, fmt.Errorf("%w: line %d: %w", ErrIncomplete, count+1, err)
		case line.End == nil:
			count++
			use(line)
		case line.End.Lines != count:
			return End{}, fmt.Errorf("%w: %d of %d lines", ErrIncomplete, count, line.End.Lines)
		default:
			return *line.End, nil
		}
	}
	if err := lines.Err(); err != nil {
		return End{}, fmt.Errorf("%w: after %d lines: %w", ErrIncomplete, count, err)
	}
	return End{}, fmt.Errorf("%w: it has no end after %d lines", ErrIncomplete, count)
}
