package efs

import (
	"fmt"
	"regexp"
)

// Ids become parts of names, labels, file names and the tunnel's configuration. AWS gives 8 to
// 40 hexadecimal digits; the original system's documentation uses other letters and fewer, so
// the check leaves room for both and for nothing that could be more than a name.
var (
	fileSystemID  = regexp.MustCompile(`^fs-[0-9a-z]{1,40}$`)
	accessPointID = regexp.MustCompile(`^fsap-[0-9a-z]{1,40}$`)
)

// CheckFileSystemID returns an error that says what is allowed unless the id could be a file
// system's.
func CheckFileSystemID(id string) error {
	if !fileSystemID.MatchString(id) {
		return fmt.Errorf("%q is no file system id: want fs- and 1 to 40 lower-case letters or digits", id)
	}
	return nil
}

// CheckAccessPointID is CheckFileSystemID for access points.
func CheckAccessPointID(id string) error {
	if !accessPointID.MatchString(id) {
		return fmt.Errorf("%q is no access point id: want fsap- and 1 to 40 lower-case letters or digits", id)
	}
	return nil
}
