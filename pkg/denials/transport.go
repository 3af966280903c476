package denials

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxStatusBytes is more than any refusal needs.
const maxStatusBytes = 64 << 10

// Wrap is for rest.Config.Wrap: it looks at what the apiserver answers.
func (d *Denials) Wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{next, d}
}

type transport struct {
	next    http.RoundTripper
	denials *Denials
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil {
		t.denials.look(request, response)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find what is inside.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (d *Denials) look(request *http.Request, response *http.Response) {
	if response.StatusCode != http.StatusForbidden && d.none() {
		return // which is nearly always
	}
	right, object, ok := parseRequest(request)
	if !ok {
		return
	}
	if response.StatusCode != http.StatusForbidden {
		if wasAuthorized(response.StatusCode) {
			d.grant(right, object)
			d.grantListing(right)
		}
		return
	}
	if message := messageOf(response); isAuthorizers(right, message) {
		d.refuse(right, object, message)
	} else {
		d.grant(right, object)
	}
}

// grantListing: client-go's caches list only where they may not watch, so nobody asks again for
// a list that was refused once the watch is granted.
func (d *Denials) grantListing(right Right) {
	if right.Verb == "watch" {
		right.Verb = "list"
		d.grant(right, "")
	}
}

// wasAuthorized says which answers come after the question of rights. Other errors may be given
// before it.
func wasAuthorized(code int) bool {
	return code < http.StatusBadRequest ||
		code == http.StatusNotFound || code == http.StatusConflict || code == http.StatusUnprocessableEntity
}

// messageOf reads the body and puts it back for the client.
func messageOf(response *http.Response) string {
	head, err := io.ReadAll(io.LimitReader(response.Body, maxStatusBytes))
	rest := response.Body
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), rest), rest}
	if err != nil {
		return "" // the client will meet the error, too
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(head, nil, nil)
	if status, ok := object.(*metav1.Status); err == nil && ok {
		return status.Message
	}
	return string(head)
}

// isAuthorizers tells a missing right from what admission refuses with the same code: quotas,
// Pod Security, namespaces that are going away. Only the words differ: those of the apiserver
// for every kind of authorizer are `User "x" cannot list resource "y" in API group …`.
// Admission is about writes, so a read needs no such care.
func isAuthorizers(right Right, message string) bool {
	return right.Verb == "get" || right.KeepsCaches() || strings.Contains(message, " cannot "+right.Verb+" resource ")
}

// parseRequest says which right a request needs; ok is false for paths that are no resources.
//
//	[/prefix]/api/v1/[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]
//	[/prefix]/apis/GROUP/VERSION/[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]
func parseRequest(request *http.Request) (right Right, object string, ok bool) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	start := slices.IndexFunc(parts, func(part string) bool { return part == "api" || part == "apis" })
	if start < 0 {
		return Right{}, "", false
	}
	skip := start + 2
	if parts[start] == "apis" && len(parts) > start+1 {
		right.Group, skip = parts[start+1], start+3
	}
	if len(parts) <= skip {
		return Right{}, "", false
	}
	parts = parts[skip:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		right.Namespace, parts = parts[1], parts[2:]
	}
	right.Resource = parts[0]
	if len(parts) > 1 {
		object = parts[1]
	}
	if len(parts) > 2 {
		right.Resource += "/" + parts[2]
	}
	right.Verb = verb(request, object)
	return right, object, true
}

func verb(request *http.Request, object string) string {
	switch request.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if object == "" {
			return "deletecollection"
		}
		return "delete"
	}
	switch watch := request.URL.Query().Get("watch"); {
	case object != "":
		return "get"
	case watch != "" && watch != "false" && watch != "0":
		return "watch"
	}
	return "list"
}
