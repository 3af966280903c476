package ports

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Keys of a view.
const (
	viewText    = wellknown.TargetsKey + ".gz" // the text of the table
	viewVersion = "version"                    // of the table that it was made from
)

// maxTextBytes is the most that a ConfigMap holds. A reader of views decompresses no more.
const maxTextBytes = 1 << 20

// VersionOf identifies the content of the table's ConfigMap: versions of one that was created again may repeat.
func VersionOf(table metav1.Object) string {
	return string(table.GetUID()) + "/" + table.GetResourceVersion()
}

// NewView returns the compressed copy of the table that node agents watch. Equal tables give equal views.
func NewView(table *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, _ = w.Write([]byte(table.Data[wellknown.TargetsKey])) // cannot fail: the buffer takes everything
	_ = w.Close()
	if size := compressed.Len(); size > MaxTableBytes {
		return nil, fmt.Errorf("the table has %d bytes when compressed; want at most %d", size, MaxTableBytes)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: table.Namespace, Name: wellknown.ViewConfigMap, Labels: map[string]string{
			"app.kubernetes.io/name": "efs-stunnel",
			wellknown.LabelManagedBy: wellknown.ManagerDeployment,
		}},
		Data:       map[string]string{viewVersion: VersionOf(table)},
		BinaryData: map[string][]byte{viewText: compressed.Bytes()},
	}, nil
}

// ReadView returns the text of the table that has the metadata. It is an error if the view, which is nil if there is
// none, was made from another version, or cannot be decompressed.
func ReadView(view *corev1.ConfigMap, table metav1.Object) (string, error) {
	if view == nil {
		return "", fmt.Errorf("there is no ConfigMap %s", wellknown.ViewConfigMap)
	}
	if made, want := view.Data[viewVersion], VersionOf(table); made != want {
		return "", fmt.Errorf("ConfigMap %s has version %.60q of the table, and the table has %q", wellknown.ViewConfigMap, made, want)
	}
	text, err := Decompress(view.BinaryData[viewText])
	if err != nil {
		return "", fmt.Errorf("decompressing %s of ConfigMap %s: %w", viewText, wellknown.ViewConfigMap, err)
	}
	return string(text), nil
}

// Decompress returns the text of a view, which is bounded.
func Decompress(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxTextBytes+1))
	if len(text) > maxTextBytes {
		return nil, fmt.Errorf("it has more than %d bytes", maxTextBytes)
	}
	return text, err
}
