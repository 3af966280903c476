// Package fsroot reaches what is on a mounted file system: it opens the right one, holds its lock, and walks paths
// one component at a time. It knows nothing of owners.
//
// # Trust
//
// Tenants write inside their volumes, and a path may lead through what was once theirs. So a
// path is walked one component at a time, through a handle on each directory; a component that
// is a symbolic link, or that was replaced between check and use, ends the operation. os.Root
// alone would follow a link that stays inside the file system, into another tenant's data.
package fsroot
