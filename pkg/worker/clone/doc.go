// Package clone copies the directory of a volume aside, while batches go on, and publishes the copy by one rename.
package clone
