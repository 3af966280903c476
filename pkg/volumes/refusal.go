package volumes

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Refusal is why a claim cannot be accepted as it is: one sentence for its event and its
// annotation. Only an edit of claim, class or file systems can mend it.
type Refusal string

// Error is the sentence.
func (r Refusal) Error() string { return string(r) }

// Limits of what a message repeats of other people's words.
const (
	maxMessageBytes = 1000 // an event's note has room for 1,024
	maxQuotedBytes  = 100
)

// refuse makes a refusal of several findings, cut to what an event can hold.
func refuse(findings ...string) Refusal {
	return Refusal(cut(strings.Join(findings, "; "), maxMessageBytes))
}

// quoted shows a value of unknown content: no control characters, no great length.
func quoted(value string) string { return strconv.Quote(cut(value, maxQuotedBytes)) }

// plain is quoted without the quotes, for words that a sentence reads better without them.
func plain(value string) string {
	text := quoted(value)
	return text[1 : len(text)-1]
}

// cut shortens a text to at most n bytes, never within a character.
func cut(text string, n int) string {
	const ellipsis = "…"
	if len(text) <= n {
		return text
	}
	end := n - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
