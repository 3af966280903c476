// Package volumes decides what a claim and its storage class get: the file system, path, owner and mode
// of the directory, the operation of the mount Job that makes it, and the PersistentVolume. It also
// parses volumes, and decides about their adoption, cleanup, expansion and correction.
//
// Every decision depends on its arguments only.
package volumes

import (
	"strconv"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// Refusal is the reason why a claim cannot be accepted: one sentence for its event and its annotation. It holds
// until claim, class or file systems are edited.
type Refusal string

// Error returns the sentence.
func (r Refusal) Error() string { return string(r) }

// Limits of messages, and of a user's value in them.
const (
	maxMessageBytes = 1000 // the note of an event has at most 1,024
	maxQuotedBytes  = 100
)

// refuse makes a refusal of several findings, cut to what an event can hold.
func refuse(findings ...string) Refusal {
	return Refusal(operations.Shorten(strings.Join(findings, "; "), maxMessageBytes))
}

// quoted shows a value of unknown content: no control characters, no great length.
func quoted(value string) string { return strconv.Quote(operations.Shorten(value, maxQuotedBytes)) }

func plain(value string) string {
	text := quoted(value)
	return text[1 : len(text)-1]
}
