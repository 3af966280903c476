package translate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

// suffix keeps our claim beside the operator's, so that workloads move one by one.
const suffix = "-tls"

func translateSharedVolume(text []byte) ([]byte, error) {
	var old v1alpha1.SharedVolume
	if err := yaml.Unmarshal(text, &old); err != nil {
		return nil, err
	}
	volume := v1alpha1.SharedVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name + suffix, Labels: old.Labels, Annotations: old.Annotations},
		Spec:       v1alpha1.SharedVolumeSpec{FileSystemID: old.Spec.FileSystemID, AccessPointID: old.Spec.AccessPointID},
	}
	delete(volume.Annotations, corev1.LastAppliedConfigAnnotation)
	volume.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.SharedVolumeKind))
	if err := checkSharedVolume(volume); err != nil {
		return nil, fmt.Errorf("SharedVolume %q: %w", old.Name, err)
	}
	out, err := yaml.Marshal(volume)
	claim := wellknown.SharedClaimPrefix + old.Name
	return append(fmt.Appendf(nil, "# name the claim %s%s in pods in place of %s: it has the same data\n"+
		"# delete the operator's SharedVolume when no pod uses its claim\n", claim, suffix, claim), out...), err
}

func checkSharedVolume(v v1alpha1.SharedVolume) error {
	if wrong := validation.IsDNS1123Subdomain(v.Name); len(wrong) > 0 {
		return fmt.Errorf("its name would be %q: %s", v.Name, strings.Join(wrong, ", "))
	}
	if err := efs.CheckFileSystemID(v.Spec.FileSystemID); err != nil {
		return fmt.Errorf("spec.fileSystemID: %w", err)
	}
	if err := efs.CheckAccessPointID(v.Spec.AccessPointID); err != nil {
		return fmt.Errorf("spec.accessPointID: %w", err)
	}
	return nil
}
