// Package v1alpha1 holds the project's own API objects, in the group
// efs-stunnel.gnuthought.com: SharedVolume.
//
// There is no generated client. Objects are read and written through the dynamic client, and
// converted with apimachinery's own converter.
package v1alpha1

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of the API.
const (
	GroupName            = "efs-stunnel.gnuthought.com"
	Version              = "v1alpha1"
	SharedVolumeKind     = "SharedVolume"
	SharedVolumeResource = "sharedvolumes"
)

// GroupVersion is that of all objects of the package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: Version}
}

// SharedVolumes is the resource of SharedVolume objects in the API.
func SharedVolumes() schema.GroupVersionResource {
	return GroupVersion().WithResource(SharedVolumeResource)
}

// SharedVolume gives the pods of its namespace an access point, or a directory, of a file
// system: as the claim that its status names.
type SharedVolume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   SharedVolumeSpec   `json:"spec"`
	Status SharedVolumeStatus `json:"status,omitzero"`
}

// SharedVolumeSpec says what is shared. It cannot be changed. One of AccessPointID and Path is
// set.
type SharedVolumeSpec struct {
	// FileSystemID is a target of the table: a file system of EFS, or a pinned one.
	FileSystemID string `json:"fileSystemID"`
	// AccessPointID is an access point of the file system.
	AccessPointID string `json:"accessPointID,omitempty"`
	// Path is a directory that exists, from the file system's root.
	Path string `json:"path,omitempty"`
	// IAM has the tunnel show the node's AWS identity, as policies of file systems require.
	IAM bool `json:"iam,omitempty"`
	// ReadOnly has nodes mount it read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Phase is what a SharedVolume has come to.
type Phase string

// The phases.
const (
	Pending  Phase = "Pending"  // something is still to come; the message says what
	Ready    Phase = "Ready"    // pods can use the claim
	Deleting Phase = "Deleting" // claim and volume are going
	Failed   Phase = "Failed"   // it needs a correction by its user or an administrator; the message says which
)

// ConditionReady is True in phase Ready and False in all others.
const ConditionReady = "Ready"

// SharedVolumeStatus reports the current state.
type SharedVolumeStatus struct {
	Phase Phase `json:"phase,omitempty"`
	// ClaimRef is the claim for pods; unset until it was made.
	ClaimRef *ClaimReference `json:"claimRef,omitempty"`
	// Message is for people: what is waited for, or wrong.
	Message string `json:"message,omitempty"`
	// ObservedGeneration is the metadata.generation that the rest is about.
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// ClaimReference names a claim in the SharedVolume's namespace.
type ClaimReference struct {
	Name string `json:"name"`
}

// DeepCopyObject implements runtime.Object.
func (s *SharedVolume) DeepCopyObject() runtime.Object {
	if s == nil {
		return nil
	}
	return s.DeepCopy()
}

// DeepCopy returns a copy that shares nothing with the original.
func (s *SharedVolume) DeepCopy() *SharedVolume {
	if s == nil {
		return nil
	}
	c := *s
	c.ObjectMeta = *s.ObjectMeta.DeepCopy()
	c.Status = s.Status.DeepCopy()
	return &c
}

// DeepCopy returns a copy that shares nothing with the original.
func (s SharedVolumeStatus) DeepCopy() SharedVolumeStatus {
	if s.ClaimRef != nil {
		s.ClaimRef = new(*s.ClaimRef)
	}
	s.Conditions = slices.Clone(s.Conditions)
	return s
}

// FromUnstructured reads an object of the dynamic client. The error says which field is not
// what it should be.
func FromUnstructured(object *unstructured.Unstructured) (*SharedVolume, error) {
	shared := &SharedVolume{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, shared); err != nil {
		return nil, fmt.Errorf("reading SharedVolume %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	// Lists leave it out, and events need it.
	shared.SetGroupVersionKind(GroupVersion().WithKind(SharedVolumeKind))
	return shared, nil
}

// ToUnstructured is the object for the dynamic client.
func (s *SharedVolume) ToUnstructured() (*unstructured.Unstructured, error) {
	typed := s.DeepCopy()
	typed.SetGroupVersionKind(GroupVersion().WithKind(SharedVolumeKind))
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("writing SharedVolume %s/%s: %w", s.Namespace, s.Name, err)
	}
	return &unstructured.Unstructured{Object: fields}, nil
}
