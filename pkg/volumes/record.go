package volumes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// record has the fields of a volume that its operation has not. It is part of the operation, so that the volume
// fits the directory that was made even if claim or class have changed since. Hundreds of operations share an
// annotation, so defaults are left out.
type record struct {
	FileSystemID string            `json:"fs"`
	Size         resource.Quantity `json:"size"`
	AccessModes  []string          `json:"modes"` // RWO, ROX, RWX, RWOP
	Class        string            `json:"class"`
	Policy       string            `json:"policy"`
	MountOptions string            `json:"options,omitempty"` // with commas between; "" is the default
	Labels       map[string]string `json:"labels,omitempty"`
	Zone         string            `json:"zone,omitempty"`
	Keep         string            `json:"keep,omitempty"`
}

func newRecord(claim Claim, class Class, choice Choice) record {
	r := record{
		FileSystemID: choice.FileSystemID,
		Size:         claim.Capacity,
		Class:        class.Name,
		Policy:       string(claim.ReclaimPolicy),
		MountOptions: strings.Join(class.MountOptions, ","),
		Labels:       claim.Labels,
		Zone:         choice.Zone,
		Keep:         class.KeepDeleted,
	}
	if r.MountOptions == wellknown.DefaultMountOptions {
		r.MountOptions = ""
	}
	for _, mode := range claim.AccessModes {
		r.AccessModes = append(r.AccessModes, shortAccessModes()[mode])
	}
	return r
}

func decodeRecord(operation operations.Operation) (record, error) {
	var r record
	if err := json.Unmarshal(operation.Record, &r); err != nil {
		return record{}, fmt.Errorf("reading the record of volume %s: %w", operation.Volume, err)
	}
	return r, nil
}

// mountOptions may have been written by an earlier version, in other spellings, or with an option that is
// refused now.
func (r record) mountOptions() []string {
	if r.MountOptions == "" {
		return strings.Split(wellknown.DefaultMountOptions, ",")
	}
	return slices.DeleteFunc(kernelSpellings(strings.Split(r.MountOptions, ",")), isHarmful)
}

func (r record) accessModes() []corev1.PersistentVolumeAccessMode {
	var modes []corev1.PersistentVolumeAccessMode
	for _, short := range r.AccessModes {
		for mode, s := range shortAccessModes() {
			if s == short {
				modes = append(modes, mode)
			}
		}
	}
	return modes
}

// shortAccessModes returns the access modes that a volume can have, as kubectl shows them.
func shortAccessModes() map[corev1.PersistentVolumeAccessMode]string {
	return map[corev1.PersistentVolumeAccessMode]string{
		corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX", corev1.ReadWriteOncePod: "RWOP",
	}
}
