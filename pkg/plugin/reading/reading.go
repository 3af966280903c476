// Package reading reads objects with the rights of a user, and keeps which are missing.
package reading

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
)

// Unread names what the user has no right to read.
type Unread struct {
	Verb      string `json:"verb"`
	Resource  string `json:"resource"`            // with its API group: deployments.apps
	Namespace string `json:"namespace,omitempty"` // "" for all
	Name      string `json:"name,omitempty"`
}

func (u Unread) String() string {
	text := strings.TrimSpace(u.Verb + " " + u.Resource + " " + u.Name)
	if u.Namespace == "" {
		return text + " in all namespaces"
	}
	return text + " in namespace " + u.Namespace
}

// Texts returns each as a line of text.
func Texts(all []Unread) (texts []string) {
	for _, unread := range all {
		texts = append(texts, unread.String())
	}
	return texts
}

// Reader reads objects with the rights of a user, who may not have all that are needed.
type Reader struct {
	Unread *[]Unread // what the user may not read
	Failed error     // the first failure, after which nothing is read
}

// Note keeps what is forbidden. An object that does not exist is no error either.
func (r *Reader) Note(err error, what Unread) {
	switch {
	case err == nil, apierrors.IsNotFound(err):
	case !apierrors.IsForbidden(err):
		r.Failed = fmt.Errorf("reading %s: %w", what.Resource, err)
	case !slices.Contains(*r.Unread, what):
		*r.Unread = append(*r.Unread, what)
	}
}

// Get reads one object; it is nil when it does not exist or may not be read.
func Get[T any](ctx context.Context, r *Reader, resource, namespace, name string, read func(context.Context, string, metav1.GetOptions) (*T, error)) *T {
	if r.Failed != nil {
		return nil
	}
	object, err := read(ctx, name, metav1.GetOptions{})
	if err != nil {
		r.Note(err, Unread{"get", resource, namespace, name})
		return nil
	}
	return object
}

// List reads all pages of a list.
func List[T any, L runtime.Object](ctx context.Context, r *Reader, resource, namespace, selector string,
	read func(context.Context, metav1.ListOptions) (L, error),
) (all []T) {
	Each(ctx, r, resource, namespace, selector, read, func(object T) { all = append(all, object) })
	return all
}

// NameOf returns the namespace and the name of an object.
func NameOf[T metav1.Object](object T) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// Index returns the objects of a list by a key, mostly their name.
func Index[K comparable, T any](all []T, key func(T) K) map[K]T {
	index := make(map[K]T, len(all))
	for _, object := range all {
		index[key(object)] = object
	}
	return index
}

// Each calls do for each object of a list, of which it never holds more than a page.
func Each[T any, L runtime.Object](ctx context.Context, r *Reader, resource, namespace, selector string,
	read func(context.Context, metav1.ListOptions) (L, error), do func(T),
) {
	if r.Failed != nil {
		return
	}
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return read(ctx, options)
	}
	err := pager.New(page).EachListItem(ctx, metav1.ListOptions{FieldSelector: selector}, func(object runtime.Object) error {
		if typed, ok := object.(T); ok {
			do(typed)
		}
		return nil
	})
	r.Note(err, Unread{"list", resource, namespace, ""})
}
