package kubelet

import (
	"context"
	"time"
)

// Fate is what becomes of a pod. Its fields come true in their order; the zero Fate has the pod
// start at once and end as its program does.
type Fate struct {
	// Unschedulable are the scheduler's words: no node takes the pod.
	Unschedulable string
	// FailedMount are the words of mount(8): the root volume cannot be mounted.
	FailedMount string
	// ImagePull are the words of the container runtime: the image cannot be had.
	ImagePull string
	// Until ends the three above, and Hung, when it is closed; nil is for ever.
	Until <-chan struct{}

	// Delay is from the mount to the container's start.
	Delay time.Duration
	// Before is called when the container is Running and its program is not; After when the
	// program has ended and the cluster has not heard of it.
	Before, After func(ctx context.Context, run Run)

	// CheckMount has the program look at its mount as in a real container. Here it is no NFS
	// mount, so nothing is touched and all operations fail.
	CheckMount bool
	// Ending is how the container ends.
	Ending Ending
	// Operations is how many operations are done before an Ending other than Natural, or
	// AllOperations.
	Operations int
}

// AllOperations has an Ending come after the work, and before anybody heard of it.
const AllOperations = -1

// Ending is how a container ends.
type Ending string

// The endings.
const (
	// Natural: as the program does.
	Natural Ending = ""
	// Terminated: the program gets a signal, and reports what it has done.
	Terminated Ending = "Terminated"
	// Killed: nothing is left but exit code 137. The file system is as after one more complete
	// step; package directories has tests of its own for crashes within steps.
	Killed Ending = "Killed"
	// Vanished: as Killed, and the pod object is deleted by force in the same moment.
	Vanished Ending = "Vanished"
	// Hung: the container neither works nor dies, as one whose mount hangs. Deleting its pod
	// changes nothing.
	Hung Ending = "Hung"
)
