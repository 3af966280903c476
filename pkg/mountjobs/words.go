package mountjobs

import (
	"regexp"
	"strings"
)

// wordsBytes is how much of somebody else's text a message of ours repeats.
const wordsBytes = 240

// podPath is kubelet's long name of a mount, which helps nobody.
var podPath = regexp.MustCompile(`/[^\s:"]*/pods/[0-9a-f-]{36}/[^\s:"]*`)

// shorten puts text on one line of at most so many bytes, and cuts between characters.
func shorten(text string, length int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) <= length {
		return text
	}
	const mark = "…"
	cut := max(length-len(mark), 0)
	return strings.ToValidUTF8(text[:cut], "") + mark
}

// words are somebody's own, short enough for an event.
func words(text string) string {
	return shorten(podPath.ReplaceAllString(text, "…"), wordsBytes)
}
