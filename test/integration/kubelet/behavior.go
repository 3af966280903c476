package kubelet

import (
	"context"
	"time"
)

// Behavior describes the life of a pod, in the order of the fields. With the zero Behavior the pod starts at once
// and ends as its program does.
type Behavior struct {
	// Seen is closed when the kubelet takes up the pod, which is on its node; nil is at once.
	Seen <-chan struct{}
	// FailedMount is an error of mount(8): the root volume cannot be mounted.
	FailedMount string
	// Until ends FailedMount and Hung when it is closed; nil is never.
	Until <-chan struct{}

	// Delay is from the mount to the container's start.
	Delay time.Duration
	// Before is called when the container is Running, before its program starts.
	Before func(ctx context.Context)

	// Ending is how the container ends.
	Ending Ending
	// Operations is how many operations are done before an Ending other than Natural, or
	// AllOperations.
	Operations int
}

// AllOperations has an Ending come after the work, and before the report of it.
const AllOperations = -1

// Ending is the way in which a container ends.
type Ending string

// The endings.
const (
	// Natural: as the program does.
	Natural Ending = ""
	// Terminated: the program gets SIGTERM, and reports what it has done.
	Terminated Ending = "Terminated"
	// Killed: nothing is left but exit code 137. The file system is as after one more complete
	// step; package directories has tests of its own for crashes within steps.
	Killed Ending = "Killed"
	// Vanished: as Killed, and the pod object is deleted by force at the same moment.
	Vanished Ending = "Vanished"
	// Hung: the container neither works nor ends, as one whose mount hangs. Deleting its pod
	// changes nothing.
	Hung Ending = "Hung"
)
