// Package admin is how a running stand-in is looked at and changed: HTTP and
// JSON over a unix socket, which also works from outside its network namespace.
package admin

import (
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
)

// Status is what the stand-in is doing.
type Status struct {
	Faults       []efsapi.Fault            `json:"faults"`       // of the API, in force
	Calls        map[string]map[string]int `json:"calls"`        // of the API, by operation and result
	MountTargets []terminator.Status       `json:"mountTargets"` // sorted by file system and address
}

// MountTargetChange sets what is not "".
type MountTargetChange struct {
	State       string                     `json:"state,omitempty"`       // what the API says; survives a restart
	Mode        terminator.Mode            `json:"mode,omitempty"`        // until cleared or restarted
	Certificate terminator.CertificateKind `json:"certificate,omitempty"` // until cleared or restarted
}

// AccessPointChange sets what is not "".
type AccessPointChange struct {
	State string `json:"state,omitempty"`
}

// failure is the body of an answer that is not a success.
type failure struct {
	Error string `json:"error"`
}
