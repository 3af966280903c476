package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
)

// FakeMetadata returns a client for the metadata of the ConfigMaps of another fake.
func FakeMetadata(client kubernetes.Interface) metadata.Interface {
	return configMapMetadata{client: client}
}

type configMapMetadata struct {
	metadata.Getter // nil: informers only list and watch
	client          kubernetes.Interface
}

// IsWatchListSemanticsUnSupported is what client-go asks of fakes.
func (configMapMetadata) IsWatchListSemanticsUnSupported() bool { return true }

func (m configMapMetadata) Resource(schema.GroupVersionResource) metadata.Getter { return m }
func (m configMapMetadata) Namespace(string) metadata.ResourceInterface          { return m }

func (m configMapMetadata) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list, err := m.client.CoreV1().ConfigMaps("efs-stunnel").List(ctx, o)
	if err != nil {
		return nil, err
	}
	all := &metav1.PartialObjectMetadataList{ListMeta: list.ListMeta}
	for _, object := range list.Items {
		all.Items = append(all.Items, metav1.PartialObjectMetadata{ObjectMeta: object.ObjectMeta})
	}
	return all, nil
}

func (m configMapMetadata) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	events, err := m.client.CoreV1().ConfigMaps("efs-stunnel").Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
		if object, ok := e.Object.(*corev1.ConfigMap); ok {
			e.Object = &metav1.PartialObjectMetadata{ObjectMeta: object.ObjectMeta}
		}
		return e, true
	}), nil
}
