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

// ranked lists a map's keys in an order that has nothing to do with names or
// age, because EFS promises none, but that stays the same from call to call.
func ranked[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
}

func rank(id string) string {
	hash := sha256.Sum256([]byte(id))
	return hex.EncodeToString(hash[:])
}

// page cuts the ids that follow the marker; next is "" on the last page. The
// marker holds a place in the order, so that it outlives deletions.
func page(ids []string, marker string, size int) (some []string, next string, err *apiError) {
	if marker != "" {
		place, decodeErr := base64.RawURLEncoding.DecodeString(marker)
		if decodeErr != nil || len(place) != 2*sha256.Size {
			return nil, "", badRequest("Invalid pagination token: " + marker)
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return rank(id) <= string(place) })
	}
	if len(ids) <= size {
		return ids, "", nil
	}
	return ids[:size], base64.RawURLEncoding.EncodeToString([]byte(rank(ids[size-1]))), nil
}

const (
	mountTargetPage = 10 // the API's default for mount targets
	largestPage     = 100
	largestResults  = 1000 // of DescribeAccessPoints
)

// size is the page size: the fault's, or the smaller one of what the client
// asks for and what the API gives.
func (c call) size(parameter string, fallback, largest int) (int, *apiError) {
	size := fallback
	if text := c.URL.Query().Get(parameter); text != "" {
		asked, err := strconv.Atoi(text)
		if err != nil || asked < 1 {
			return 0, badRequest(parameter + " must be a number of at least 1, not " + text)
		}
		size = min(asked, largest)
	}
	if c.pageSize > 0 {
		size = min(size, c.pageSize)
	}
	return size, nil
}
