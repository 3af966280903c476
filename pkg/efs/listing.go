package efs

import "time"

// Listing is the result of one poll of the API.
type Listing struct {
	FileSystems []FileSystem
	// Source is the AWS account that owns the file systems, and their region, as in
	// 123456789012/us-east-1; "" when the API does not say.
	Source string
	// Failed is why the mount targets of a file system could not be read, by its id. FileSystems has
	// the file system without mount targets.
	Failed map[string]error
	// Complete says that every page of every list was read, so that what is not in the listing does
	// not exist.
	Complete bool
	// ReadAt is when the poll began. It identifies the listing.
	ReadAt time.Time
}

// Conclusive reports whether file systems that the listing lacks count as missing. In a partial listing they do
// not, nor in an empty one: the API also returns that for the wrong region or credentials without access.
func (l Listing) Conclusive() bool {
	return l.Complete && len(l.Failed) == 0 && len(l.FileSystems) > 0
}
