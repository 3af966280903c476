package objects_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/kube/objects"
)

const pageSize = 500

// cluster has claims and volumes named 0, 1, 2…, and answers lists page by page, as an apiserver does.
type cluster struct {
	client *fake.Clientset
	gets   map[string]int // by resource
	pages  map[string]int
}

func newCluster(objects int) *cluster {
	c := &cluster{client: fake.NewClientset(), gets: map[string]int{}, pages: map[string]int{}}
	c.serve("persistentvolumes", objects, func(meta metav1.ObjectMeta) runtime.Object {
		return &corev1.PersistentVolume{ObjectMeta: meta}
	}, func(items []runtime.Object, list metav1.ListMeta) runtime.Object {
		answer := &corev1.PersistentVolumeList{ListMeta: list}
		for _, item := range items {
			answer.Items = append(answer.Items, *item.(*corev1.PersistentVolume)) //nolint:errcheck // of another type, it panics
		}
		return answer
	})
	c.serve("persistentvolumeclaims", objects, func(meta metav1.ObjectMeta) runtime.Object {
		meta.Namespace = "team"
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta}
	}, func(items []runtime.Object, list metav1.ListMeta) runtime.Object {
		answer := &corev1.PersistentVolumeClaimList{ListMeta: list}
		for _, item := range items {
			answer.Items = append(answer.Items, *item.(*corev1.PersistentVolumeClaim)) //nolint:errcheck // of another type, it panics
		}
		return answer
	})
	return c
}

func (c *cluster) serve(resource string, objects int, object func(metav1.ObjectMeta) runtime.Object, list func([]runtime.Object, metav1.ListMeta) runtime.Object) {
	c.client.PrependReactor("get", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.gets[resource]++ // the fake client serves one request at a time
		var number int
		_, err := fmt.Sscan(action.(clienttesting.GetAction).GetName(), &number) //nolint:errcheck // of another type, it panics
		return err == nil && number < objects, object(metav1.ObjectMeta{Name: fmt.Sprint(number)}), err
	})
	c.client.PrependReactor("list", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.pages[resource]++
		options := action.(clienttesting.ListActionImpl).GetListOptions() //nolint:errcheck // of another type, it panics
		first := 0
		if options.Continue != "" {
			if _, err := fmt.Sscan(options.Continue, &first); err != nil {
				return true, nil, err
			}
		}
		var meta metav1.ListMeta
		last := objects
		if left := int64(objects - first - pageSize); left > 0 {
			last = first + pageSize
			meta.Continue, meta.RemainingItemCount = fmt.Sprint(last), &left
		}
		var items []runtime.Object
		for i := first; i < last; i++ {
			items = append(items, object(metav1.ObjectMeta{Name: fmt.Sprint(i)}))
		}
		return true, list(items, meta), nil
	})
}

// TestReads counts requests: they follow what is requested, never what there is.
func TestReads(t *testing.T) {
	const one = objects.ManyObjects
	for name, c := range map[string]struct {
		objects, cached, wanted int
		wantGets, wantPages     int
	}{
		"nothing":                     {1200, 1200, 0, 0, 0},
		"few of few":                  {10, 10, 5, 5, 0},
		"few of many":                 {50000, 50000, one, one, 0},
		"some of not many more":       {20 * (one + 1), 20 * (one + 1), one + 1, 0, 1},
		"some of many more":           {21 * (one + 1), 21 * (one + 1), one + 1, one + 1, 0},
		"many of not many more":       {1200, 1200, 300, 0, 3},
		"many, and as many as a list": {10240, 10240, 512, 0, 21},
		"many of very many":           {50000, 50000, 512, 512, 0},
		"more than there are":         {100, 100, 300, 0, 1},
		"more than a cache knows":     {1200, 5, 300, 0, 3},
		"fewer than a cache knows":    {10, 50000, 300, 300, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(c.objects)
			reader := objects.Reader{Client: cluster.client}
			var names []string
			var owners []types.NamespacedName
			for i := range c.wanted {
				names = append(names, fmt.Sprint(i))
				owners = append(owners, types.NamespacedName{Namespace: "team", Name: fmt.Sprint(i)})
			}
			volumes, err := reader.Volumes(t.Context(), names, c.cached)
			if err != nil {
				t.Fatal(err)
			}
			claims, err := reader.Claims(t.Context(), owners, c.cached)
			if err != nil {
				t.Fatal(err)
			}
			want := min(c.wanted, c.objects)
			if len(volumes) != want || len(claims) != want {
				t.Errorf("got %d volumes and %d claims, want %d", len(volumes), len(claims), want)
			}
			for name, volume := range volumes {
				if volume.Name != name || !slices.Contains(names, name) {
					t.Errorf("volume %s has the key %s", volume.Name, name)
				}
			}
			for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims"} {
				if cluster.gets[resource] != c.wantGets || cluster.pages[resource] != c.wantPages {
					t.Errorf("%s: %d reads and %d pages, want %d and %d", resource, cluster.gets[resource], cluster.pages[resource], c.wantGets, c.wantPages)
				}
			}
		})
	}
}
