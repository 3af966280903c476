package volumes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// record is what a volume needs beside what its operation says. It travels in the operation,
// so that the volume fits the directory that was made, whatever has become of claim and class
// in the meantime. Hundreds of operations share an annotation, so defaults are left out.
type record struct {
	FileSystemID string            `json:"fs"`
	Size         resource.Quantity `json:"size"`
	AccessModes  []string          `json:"modes"` // RWO, ROX, RWX
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
		r.AccessModes = append(r.AccessModes, shortMode(mode))
	}
	return r
}

// encode is compact JSON.
func (r record) encode() (json.RawMessage, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding the record of a volume: %w", err)
	}
	return data, nil
}

func decodeRecord(operation operations.Operation) (record, error) {
	var r record
	if err := json.Unmarshal(operation.Record, &r); err != nil {
		return record{}, fmt.Errorf("reading the record of volume %s: %w", operation.Volume, err)
	}
	return r, nil
}

// mountOptions may have been written by an earlier version, in other spellings.
func (r record) mountOptions() []string {
	if r.MountOptions == "" {
		return strings.Split(wellknown.DefaultMountOptions, ",")
	}
	return kernelSpellings(strings.Split(r.MountOptions, ","))
}

func (r record) accessModes() []corev1.PersistentVolumeAccessMode {
	var modes []corev1.PersistentVolumeAccessMode
	for _, short := range r.AccessModes {
		isMode := func(mode corev1.PersistentVolumeAccessMode) bool { return shortMode(mode) == short }
		if i := slices.IndexFunc(accessModes(), isMode); i >= 0 {
			modes = append(modes, accessModes()[i])
		}
	}
	return modes
}

// shortMode is what kubectl shows: RWX.
func shortMode(mode corev1.PersistentVolumeAccessMode) string {
	switch mode {
	case corev1.ReadWriteOnce:
		return "RWO"
	case corev1.ReadOnlyMany:
		return "ROX"
	default:
		return "RWX"
	}
}
