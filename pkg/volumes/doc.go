// Package volumes turns a claim and its storage class into a volume: which file system holds
// it, at what path, with which owner and mode, what a mount Job has to do for it, and the
// PersistentVolume that comes of it. It also reads volumes back and says what they are.
//
// Everything here is decided from its arguments alone, so every controller that looks at the
// same objects decides the same, and a test can ask every question.
package volumes
