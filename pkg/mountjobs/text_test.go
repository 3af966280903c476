package mountjobs

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestEventsHaveOnePlainLine: the messages of Jobs name files of tenants.
func TestEventsHaveOnePlainLine(t *testing.T) {
	name := "x\x1b[2J\nFAKE\r\t\u202e\x9b\xff" + strings.Repeat("y", 300)
	got := quote("unlinkat " + name)
	if want := "unlinkat x?[2J FAKE ??yyy"; !strings.HasPrefix(got, want) || len(got) > maxQuote || !utf8.ValidString(got) {
		t.Errorf("got %q, want %q…", got, want)
	}
}
