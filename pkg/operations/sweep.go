package operations

import "time"

// Swept is what a sweep has done, and what it has left.
type Swept struct {
	// Removed counts files and directories.
	Removed int64 `json:"removed"`
	// Volumes counts the directories in the trash whose time was over.
	Volumes int `json:"volumes"`
	// Kept counts those whose time was not over, or that nothing is known about, when all were
	// counted last: by this sweep, or in a large trash by one of the last hour.
	Kept int `json:"kept"`
	// Unknown counts those among them that stay for ever: they have no record that can be read.
	Unknown int `json:"unknown,omitempty"`
	// Indexed counts the records, of versions before, that this sweep has put into the index.
	Indexed int `json:"indexed,omitempty"`
	// Next is when the next one's time is over, by the server's clock; zero is never.
	Next time.Time `json:"next,omitzero"`
	// NextIn is Next as seconds from the sweep's begin, for who has another clock.
	NextIn int64 `json:"nextInSeconds,omitempty"`
}
