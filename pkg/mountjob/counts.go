package mountjob

import (
	"log/slog"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// counts are in a group of their own: the log keys that all our programs share name objects.
func counts(pairs ...any) slog.Attr {
	return slog.Group("count", pairs...) //nolint:sloglint // the group's name; its keys are numbers of this program only
}

func sweptSoFar(swept operations.Swept) slog.Attr {
	return counts("removed", swept.Removed, "volumes", swept.Volumes)
}

func sweptAtEnd(swept operations.Swept) slog.Attr {
	return counts("removed", swept.Removed, "volumes", swept.Volumes, "kept", swept.Kept, "unknown", swept.Unknown, "indexed", swept.Indexed)
}
