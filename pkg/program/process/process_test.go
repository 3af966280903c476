package process

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLinesAreBounded(t *testing.T) {
	var got []string
	s := &lines{emit: func(text string) { got = append(got, text) }}
	long := strings.Repeat("x", 10*maxLineBytes)
	n, err := io.Copy(s, strings.NewReader("one\r\n\ntwo\n"+long+"\nbad \xff\nrest"))
	s.flush()
	if diff := cmp.Diff([]string{"one", "two", long[:maxLineBytes], "bad ?", "rest"}, got); diff != "" || err != nil {
		t.Errorf("lines mismatch, error %v (-want +got):\n%s", err, diff)
	}
	if want := int64(5 + 1 + 4 + len(long) + 1 + 6 + 4); n != want {
		t.Errorf("took %d bytes, want %d", n, want)
	}
}

func TestIsZombieOf(t *testing.T) {
	tests := map[string]bool{
		"12 (stunnel4) Z 1 12 12 0":     true,
		"12 (stunnel4) S 1 12 12 0":     false,
		"12 (stunnel4) Z 2 12 12 0":     false,
		"12 (a) Z 1 (b) S 1 12 12 0":    false,
		"12 (evil) S 9 12) Z 1 12 12 0": true,
		"":                              false,
		"12 (x)":                        false,
	}
	for stat, want := range tests {
		if got := isZombieOf([]byte(stat), 1); got != want {
			t.Errorf("%q: got %v", stat, got)
		}
	}
}
