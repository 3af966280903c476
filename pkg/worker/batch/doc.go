// Package batch carries out operations under the lock of a file system: it makes, removes and restores the
// directories of volumes. Repeating an operation is harmless, whatever line the last run stopped at.
package batch
