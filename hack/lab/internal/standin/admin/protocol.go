// Package admin reads and changes a running stand-in: HTTP and JSON over a unix socket, which also
// works from outside its network namespace.
package admin

import (
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
)

// Status is the state of the stand-in.
type Status struct {
	Faults       []efsapi.Fault            `json:"faults"`       // of the API, in force
	Calls        map[string]map[string]int `json:"calls"`        // of the API, by operation and result
	MountTargets []terminator.Status       `json:"mountTargets"` // sorted by file system and address
}

// MountTargetChange sets what is not "" or nil.
type MountTargetChange struct {
	State       inventory.State            `json:"state,omitempty"`       // what the API reports; survives a restart
	Mode        terminator.Mode            `json:"mode,omitempty"`        // until cleared or restarted
	Certificate terminator.CertificateKind `json:"certificate,omitempty"` // until cleared or restarted
	Delay       *time.Duration             `json:"delay,omitempty"`       // until cleared or restarted
	Plain       *bool                      `json:"plain,omitempty"`       // until cleared or restarted
	Partitions  *terminator.Partitions     `json:"partitions,omitempty"`  // until restarted
	Rate        *int                       `json:"rate,omitempty"`        // until cleared or restarted
}

// none is an empty request or response.
type none struct{}

// failure is the body of a response that is not a success.
type failure struct {
	Error string `json:"error"`
}
