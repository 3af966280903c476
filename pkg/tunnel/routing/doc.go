// Package routing decides what a node's tunnels should be: where each begins, which mount
// targets it tries in which order, and when it must be led elsewhere. It is pure: what is known
// comes in, what should be goes out.
//
// A tunnel that works is worth more than one that is ideal. So nothing here removes or restarts
// one because something is unknown, and a restart, which cuts every connection of the tunnel,
// needs the proof that those are lost or that a better server answers.
package routing
