// Package directories is the engine of mountjob: it makes, removes and restores the directories of
// volumes on one mounted file system, and keeps the ledger of their owners.
//
// FileSystem.Run carries out a batch of operations and returns their report. FileSystem.Sweep
// empties the trash. FileSystem.Clone copies a volume. Repeating any of them is harmless, whatever line
// the last run stopped at.
//
// The files, from the bottom: dir and tree reach what is on the file system, filesystem and lock make
// sure that it is the right one and that no other Job changes it, ledger, node and gid keep its records,
// schedule determines what runs side by side, batch carries out setup, cleanup and restore, discard moves
// a directory to the trash or back, walkers walk trees of files side by side, sweep and removal empty the trash, bucket names its parts. clone, cloneplace, copying,
// copyfolder, copyfile, copycontent, copynotes and copylinks copy the directory of a volume, abandoned ends a
// copy that nothing needs any more.
//
// # On the file system
//
//	/.efs-stunnel/file-system-id        which file system this is
//	/.efs-stunnel/lock                  held while a batch changes anything
//	/.efs-stunnel/owners/<path>/@<volume>          an owner of <path> (JSON)
//	/.efs-stunnel/owners/<path>/@<volume>.leaving  one whose cleanup has begun; with ~<time> behind it, its
//	                                    directory goes there in the trash
//	/.efs-stunnel/owners/<path>/@<volume>.retained one whose volume is gone, and whose data stays
//	/.efs-stunnel/gids/<gid>            for whom this group was allocated (JSON)
//	/.efs-stunnel/trash/<volume>        a deleted directory that may be removed at once; when a claim begins
//	                                    again, the volume has another incarnation, which is <volume>~2, ~3, …
//	/.efs-stunnel/trash/<time>/<volume> one that may be removed then, by the server's clock; also NEVER
//	/.efs-stunnel/trash/…/@<volume>     its record: whose it was, and how long it is kept (JSON)
//	/.efs-stunnel/trash/@@sweeping/     the staging directory: what no restore can find any more
//	/.efs-stunnel/clones/<volume>/      a copy that is not complete yet, see clone.go
//	/.efs-stunnel/tmp/                  half-made files and directories, on their way into place; also
//	                                    tmp-2, tmp-3, … when several are made side by side; of one batch
//
// Everything appears in its place by one rename, complete; but for the file of a gid, whose name is what
// counts. An owner's entry is there before the
// directory, and goes after it.
//
// # Trust
//
// Tenants write inside their volumes, and a path may lead through what was once theirs. So a
// path is walked one component at a time, through a handle on each directory; a component that
// is a symbolic link, or that was replaced between check and use, ends the operation. os.Root
// alone would follow a link that stays inside the file system, into another tenant's data.
package directories
