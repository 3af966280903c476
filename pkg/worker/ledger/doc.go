// Package ledger records which volumes own which path, and which groups are allocated.
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
package ledger
