// Package volumes decides what a claim and its storage class get: the file system, path, owner and mode
// of the directory, the operation of the mount Job that makes it, and the PersistentVolume. It also
// parses volumes, and decides about their adoption, cleanup, expansion and correction.
//
// Every decision depends on its arguments only.
package volumes
