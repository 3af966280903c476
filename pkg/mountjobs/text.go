package mountjobs

import (
	"regexp"
	"strings"
	"unicode"
)

// maxQuote is how many bytes of another program's text a message repeats.
const maxQuote = 240

// podPath is kubelet's path of a mount, which is long and means nothing to users.
var podPath = regexp.MustCompile(`/[^\s:"]*/pods/[0-9a-f-]{36}/[^\s:"]*`)

// quote shortens another program's text for an event.
func quote(text string) string { return shorten(podPath.ReplaceAllString(text, "…"), maxQuote) }

// shorten puts text on one line of at most so many bytes, and cuts between characters. What would control
// the terminal that shows the events, or change the order of its text, is replaced.
func shorten(text string, length int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) <= length {
		return text
	}
	const mark = "…"
	return strings.ToValidUTF8(text[:max(length-len(mark), 0)], "") + mark
}
