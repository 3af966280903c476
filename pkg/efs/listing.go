package efs

import "time"

// Listing is what one poll of the API found.
type Listing struct {
	FileSystems []FileSystem
	// Source is the AWS account that owns the file systems, and their region, as in
	// 123456789012/us-east-1; "" when the API does not say.
	Source string
	// Failed holds, by file system, why its mount targets could not be read. Such a file system
	// is among FileSystems without any.
	Failed map[string]error
	// Complete is true only when every page of everything was read, so that what is not here
	// is not there.
	Complete bool
	// ReadAt is when the poll began. It tells two listings apart: a reader that counts them
	// counts each ReadAt once.
	ReadAt time.Time
}

// Conclusive says whether what this listing lacks may be taken for missing. A partial one
// proves nothing, and neither does an empty one: it is also the answer for the wrong region,
// or to a credential that may see nothing.
func (l Listing) Conclusive() bool {
	return l.Complete && len(l.Failed) == 0 && len(l.FileSystems) > 0
}
