package v1alpha1

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
)

// Kinds and resources of the objects that our programs write, and users read.
const (
	FileSystemKind       = "FileSystem"
	FileSystemResource   = "filesystems"
	NodeTunnelsKind      = "NodeTunnels"
	NodeTunnelsResource  = "nodetunnels"
	InstallationKind     = "Installation"
	InstallationResource = "installations"
)

// Observed is an object of these. It is cluster-scoped and has no spec.
type Observed[S any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Status S `json:"status,omitzero"`
}

// FileSystem shows what the manager knows of a file system. Its name is the target's id, and it is the installation's
// that wellknown.LabelInstallation names.
type FileSystem = Observed[FileSystemStatus]

// Sources of a file system.
const (
	SourceEFS    = "EFS"    // the EFS API lists it
	SourcePinned = "Pinned" // it is in the pinned table
	SourceServer = "Server" // a Service with the label of an NFS server names it
)

// FileSystemStatus is written by the leading manager.
type FileSystemStatus struct {
	DisplayName  string             `json:"displayName,omitempty"`
	Port         int                `json:"port,omitempty"` // 0 while it has none
	Source       string             `json:"source,omitempty"`
	MountTargets []MountTarget      `json:"mountTargets,omitempty"`
	Conditions   []metav1.Condition `json:"conditions,omitempty"` // of the types status.TypesOf(status.FileSystem)
}

// MountTarget is an address of a file system.
type MountTarget struct {
	Location string `json:"location"` // its zone, or its subnet
	Address  string `json:"address"`
}

// NodeTunnels shows what the agent of a node knows of its tunnels. It has the node's name, and the node
// owns it.
type NodeTunnels = Observed[NodeTunnelsStatus]

// MaxTunnels bounds the tunnels in a NodeTunnels. Those with problems come first.
const MaxTunnels = 100

// NodeTunnelsStatus is written by the node's agent.
type NodeTunnelsStatus struct {
	Version    string             `json:"version,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"` // of the types status.TypesOf(status.Node)
	Total      int                `json:"total"`                // all tunnels
	InUse      int                `json:"inUse"`                // tunnels with clients
	Failing    int                `json:"failing"`              // tunnels with problems
	// Tunnels lists those that are in use or have problems, MaxTunnels at most.
	Tunnels []Tunnel `json:"tunnels,omitempty"`
}

// Tunnel is the state of one tunnel.
type Tunnel struct {
	Name        string `json:"name"`
	Port        int    `json:"port,omitempty"` // 0 for a target that cannot be served
	MountTarget string `json:"mountTarget,omitempty"`
	InUse       bool   `json:"inUse"`
	// LatencyMillis is the time that an NFS call through the tunnel takes at most: a power of two, so that it seldom
	// changes; 0 while it is not known, or the tunnel has no clients.
	LatencyMillis int64     `json:"latencyMillis,omitempty"`
	Lanes         int64     `json:"lanes,omitempty"` // connections of stunnel for those of clients; 0 without lanes
	Problems      []Problem `json:"problems,omitempty"`
}

// Problem is a condition of a tunnel.
type Problem struct {
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Cause   *Cause      `json:"cause,omitempty"`
	Since   metav1.Time `json:"since"`
}

// Cause names the condition that a problem follows from.
type Cause struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Installation shows what concerns the whole installation. Its name is the installation's namespace.
type Installation = Observed[InstallationStatus]

// InstallationStatus is written by the leading manager.
type InstallationStatus struct {
	Leader     string             `json:"leader,omitempty"`
	Version    string             `json:"version,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"` // of the types status.TypesOf(status.Installation)
}

// FileSystems is the resource of FileSystem objects in the API.
func FileSystems() schema.GroupVersionResource {
	return GroupVersion().WithResource(FileSystemResource)
}

// NodeTunnelsObjects is the resource of NodeTunnels objects in the API.
func NodeTunnelsObjects() schema.GroupVersionResource {
	return GroupVersion().WithResource(NodeTunnelsResource)
}

// Installations is the resource of Installation objects in the API.
func Installations() schema.GroupVersionResource {
	return GroupVersion().WithResource(InstallationResource)
}

// Read converts an object of the dynamic client to one of the types above.
func Read[T any](object *unstructured.Unstructured) (*T, error) {
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return &typed, nil
}

// maxMessageBytes is the limit of the apiserver for messages of conditions.
const maxMessageBytes = 32768

// NewConditions returns the conditions of an object that is about a kind of subject, one for each of the
// kind's types: False if any condition that holds is of it. Several of one type have the reason of the
// first and the messages of all. A condition that has the status and reason of before keeps its time.
func NewConditions(kind status.Kind, holding []status.Condition, before []metav1.Condition, now time.Time) []metav1.Condition {
	var all []metav1.Condition
	for _, name := range status.TypesOf(kind) {
		c := newCondition(name, holding, now)
		if b := meta.FindStatusCondition(before, name); b != nil && b.Status == c.Status && b.Reason == c.Reason {
			c.LastTransitionTime = b.LastTransitionTime
		}
		all = append(all, c)
	}
	return all
}

func newCondition(name string, holding []status.Condition, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: status.AsExpected, LastTransitionTime: metav1.NewTime(now)}
	var messages []string
	for _, h := range holding {
		if h.TypeOf() != name {
			continue
		}
		if len(messages) == 0 {
			c.Status, c.Reason = metav1.ConditionFalse, h.Reason
			if !h.Since.IsZero() { // of a condition that no status.Set has, which is as new as the object's
				c.LastTransitionTime = metav1.NewTime(h.Since)
			}
		}
		messages = append(messages, h.Message)
	}
	c.Message = operations.Truncate(strings.Join(messages, "; "), maxMessageBytes)
	return c
}

// NewTunnels returns the tunnels that are in use or have problems, MaxTunnels at most, those with problems
// first, then by name.
func NewTunnels(all []Tunnel) []Tunnel {
	shown := slices.DeleteFunc(slices.Clone(all), func(t Tunnel) bool { return !t.InUse && len(t.Problems) == 0 })
	slices.SortFunc(shown, func(a, b Tunnel) int {
		return cmp.Or(cmp.Compare(min(len(b.Problems), 1), min(len(a.Problems), 1)), strings.Compare(a.Name, b.Name))
	})
	return shown[:min(len(shown), MaxTunnels)]
}

// NewProblem returns a condition of a tunnel as its object shows it.
func NewProblem(c status.Condition) Problem {
	p := Problem{Reason: c.Reason, Message: c.Message, Since: metav1.NewTime(c.Since)}
	if c.Cause != (status.Reference{}) {
		p.Cause = &Cause{Kind: string(c.Cause.Subject.Kind), Name: c.Cause.Subject.Name, Reason: c.Cause.Reason}
	}
	return p
}
