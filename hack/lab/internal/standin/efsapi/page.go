package efsapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
)

// paging describes the pages of an operation's answer.
type paging struct {
	token, size       string // parameters: where to continue, and the size of a page
	standard, largest int    // sizes: without the parameter, and at most
}

// page returns one page of the resources that were found, as shape shows them. next is the token of
// the next page, and "" on the last one.
func page[R, Shape any](c call, found map[string]R, p paging, shape func(R) Shape) (list []Shape, next string, err *apiError) {
	size, err := c.pageSize(p)
	if err != nil {
		return nil, "", err
	}
	if c.empty {
		clear(found)
	}
	ids := slices.SortedFunc(maps.Keys(found), func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	// The token is a position in the order, so that it remains valid when resources are deleted.
	if token := c.param(p.token); token != "" {
		position, decodeErr := base64.RawURLEncoding.DecodeString(token)
		if decodeErr != nil || len(position) != 2*sha256.Size {
			return nil, "", badRequest("Invalid pagination token: " + token)
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return rank(id) <= string(position) })
	}
	if len(ids) > size {
		next = base64.RawURLEncoding.EncodeToString([]byte(rank(ids[size-1])))
		ids = ids[:size]
	}
	list = []Shape{} // not null in JSON
	for _, id := range ids {
		list = append(list, shape(found[id]))
	}
	return list, next, nil
}

// rank orders ids neither by name nor by age, because EFS promises no order. It is the same in every
// call.
func rank(id string) string {
	hash := sha256.Sum256([]byte(id))
	return hex.EncodeToString(hash[:])
}

// pageSize returns the size that the client requests, within the limits of the API and of a fault.
func (c call) pageSize(p paging) (int, *apiError) {
	size := p.standard
	if text := c.param(p.size); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, badRequest(p.size + " must be a number of at least 1, not " + text)
		}
		size = min(n, p.largest)
	}
	if c.maxPageSize > 0 {
		size = min(size, c.maxPageSize)
	}
	return size, nil
}
