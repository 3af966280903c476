package mountjob

import (
	"log/slog"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// Counts are no names of objects, so they have a group of their own in the log, beside the keys
// that all our programs share.

func counts(pairs ...any) slog.Attr {
	return slog.Group("count", pairs...) //nolint:sloglint // the group's name; its keys are numbers of this program only
}

func sweptSoFar(swept operations.Swept) slog.Attr {
	return counts("removed", swept.Removed, "volumes", swept.Volumes)
}

func sweptAtEnd(swept operations.Swept) slog.Attr {
	return counts("removed", swept.Removed, "volumes", swept.Volumes, "kept", swept.Kept, "unknown", swept.Unknown, "indexed", swept.Indexed)
}
