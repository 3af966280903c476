// Package trash keeps the directories of deleted volumes until they are due. Sweep removes what is due, EmptyTrash
// what an administrator has selected.
package trash
