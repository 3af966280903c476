package terminator

import (
	"maps"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
)

// Status is the state of a mount target.
type Status struct {
	ID           string          `json:"id"`
	FileSystemID string          `json:"fileSystemID"`
	Address      string          `json:"address"`
	Mode         Mode            `json:"mode"`
	Certificate  CertificateKind `json:"certificate"`
	Delay        time.Duration   `json:"delay"` // in each direction
	Plain        bool            `json:"plain"` // clients without TLS are served, too
	Partitions   Partitions      `json:"partitions"`
	Wrong        int             `json:"wrong"`   // connections with requests of another partition's client
	Rate         int             `json:"rate"`    // of each connection to its client, bytes per second; 0 without limit
	Open         int             `json:"open"`    // connections now
	Total        int             `json:"total"`   // connections accepted since the start
	Refused      int             `json:"refused"` // of those, closed for a reason
	LastRefusal  string          `json:"lastRefusal,omitempty"`
	// Refusals counts those that were the client's fault, by their cause.
	Refusals    map[mountauth.Cause]int `json:"refusals"`
	Connections []ConnectionStatus      `json:"connections"` // oldest first
}

// ConnectionStatus is one connection.
type ConnectionStatus struct {
	Client      string    `json:"client"` // host:port
	Since       time.Time `json:"since"`
	Established bool      `json:"established"`           // passed on to an NFS server
	AccessPoint string    `json:"accessPoint,omitempty"` // "" = the whole file system
	Certificate bool      `json:"certificate"`           // the client showed one
	IAM         bool      `json:"iam"`                   // with an IAM signature, which was verified
}

// Status reports what the mount target is doing.
func (t *Target) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{
		ID: t.ID, FileSystemID: t.FileSystemID, Address: t.Address, Mode: t.mode, Certificate: t.certificate, Delay: t.delay, Plain: t.plain, Partitions: t.partitions, Wrong: t.wrong, Rate: t.rate,
		Open: len(t.live), Total: t.total, Refused: t.refused, LastRefusal: t.lastRefusal,
		Refusals:    maps.Clone(t.refusals),
		Connections: []ConnectionStatus{},
	}
	for c := range t.live {
		s.Connections = append(s.Connections, ConnectionStatus{
			Client: c.tcp.RemoteAddr().String(), Since: c.since, Established: c.established,
			AccessPoint: c.identity.AccessPointID, Certificate: c.identity.Present, IAM: c.identity.AccessKeyID != "",
		})
	}
	slices.SortFunc(s.Connections, func(a, b ConnectionStatus) int { return a.Since.Compare(b.Since) })
	return s
}
