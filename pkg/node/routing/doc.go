// Package routing plans the tunnels of a node: the port and mount targets of each, the order in
// which stunnel tries the mount targets, and when a tunnel fails over. It is pure: a plan depends on
// its input only.
//
// A restart cuts all connections of a tunnel. So no tunnel is removed or restarted because something is
// unknown: a restart needs proof that the connections are lost or that a nearer mount target answers.
package routing
