package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
)

// TestPiecesFitInRequests with the longest paths, and those that become longer when they are written.
func TestPiecesFitInRequests(t *testing.T) {
	for _, letter := range []string{"a", "$", "<", "\u202e"} {
		var paths []string
		for i := range 300 {
			paths = append(paths, fmt.Sprintf("/%d%s", i, strings.Repeat(letter, 1000/len(letter))))
		}
		split := pieces(paths, false)
		for _, piece := range split {
			request := requests.Request{Do: requests.ListDirectories, Directories: &requests.Directories{Paths: piece}}
			if _, err := request.Encode(); err != nil {
				t.Errorf("%q: %d paths: %v", letter, len(piece), err)
			}
		}
		if got := slices.Concat(split...); len(split) < 2 || !slices.Equal(got, paths) {
			t.Errorf("%q: %d pieces with %d of %d paths", letter, len(split), len(got), len(paths))
		}
	}
	if len(pieces([]string{}, false)) != 0 || len(pieces([]string{}, true)) != 1 {
		t.Error("an empty list is asked for, or is not")
	}
}
