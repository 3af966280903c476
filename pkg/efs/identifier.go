package efs

import (
	"fmt"
	"regexp"
)

// Ids become parts of names, labels, file names and the tunnel's configuration. Those of AWS have 8 to 40
// hexadecimal digits; the documentation of the original system also has shorter ones with other letters.
var (
	fileSystemID  = regexp.MustCompile(`^fs-[0-9a-z]{1,40}$`)
	accessPointID = regexp.MustCompile(`^fsap-[0-9a-z]{1,40}$`)
)

// CheckFileSystemID returns an error that says what is allowed, unless the id can be that of a file system.
func CheckFileSystemID(id string) error {
	if !fileSystemID.MatchString(id) {
		return fmt.Errorf("%q is no file system id: want fs- and 1 to 40 lower-case letters or digits", id)
	}
	return nil
}

// CheckAccessPointID does for access points what CheckFileSystemID does for file systems.
func CheckAccessPointID(id string) error {
	if !accessPointID.MatchString(id) {
		return fmt.Errorf("%q is no access point id: want fsap- and 1 to 40 lower-case letters or digits", id)
	}
	return nil
}
