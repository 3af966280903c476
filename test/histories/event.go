package main

// Kind names an operation on a file.
type Kind string

// The operations. A swap reads the value of a file and writes another one.
const (
	read   Kind = "read"
	write  Kind = "write"
	swap   Kind = "swap"
	lock   Kind = "lock"
	unlock Kind = "unlock"
	create Kind = "create" // with O_EXCL
	take   Kind = "take"   // a rename to a name of the client's own
)

// The results. An operation with another one failed, and one without any has not returned.
const (
	done    = "done"
	busy    = "busy"    // another client has the lock
	exists  = "exists"  // the name
	missing = "missing" // the name
)

// The phases of an operation, and the end of a client.
const (
	called   = "call"
	returned = "return"
	gone     = "gone"
)

// Event is a line of a history.
type Event struct {
	Time   int64  `json:"t"` // the referee's count of events
	Client int    `json:"c"`
	Phase  string `json:"p"`
	Op     int    `json:"o,omitempty"` // the client's count of operations
	Kind   Kind   `json:"k,omitempty"` // of a call
	File   string `json:"f,omitempty"` // of a call
	Value  int64  `json:"v,omitempty"` // written, in a call; read, in a return
	Result string `json:"r,omitempty"` // of a return
}

// request is a line to the referee. Clients send events; the others are of people and scripts.
type request struct {
	Role    string  // client, await or finish
	Events  []Event `json:",omitempty"`
	Clients int     `json:",omitempty"` // await: how many must be connected
	Count   int     `json:",omitempty"` // await: how many operations each of them must have done since
}

// reply is the referee's line.
type reply struct {
	Client int   `json:",omitempty"`
	Time   int64 `json:",omitempty"`
	Stop   bool  `json:",omitempty"`
}
