// Package treewalk walks trees of files side by side: walkers keep the pace of the requests to the server, and a
// Removal empties a directory.
package treewalk
