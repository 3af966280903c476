package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// OwnerState says what an entry of the ledger means.
type OwnerState string

// The states of owners.
const (
	Live       OwnerState = "live"       // its volume or claim exists
	Leaving    OwnerState = "leaving"    // its cleanup has begun
	Retained   OwnerState = "retained"   // a mark of retained data
	Gone       OwnerState = "gone"       // neither its volume nor its claim exists
	Elsewhere  OwnerState = "elsewhere"  // it is another cluster's
	Unreadable OwnerState = "unreadable" // the file must be mended or removed by hand
	Unknown    OwnerState = "unknown"    // the user may not read volumes or claims
)

// OwnerItem is an entry of the ledger of a file system.
type OwnerItem struct {
	FileSystem string     `json:"fileSystem"`
	State      OwnerState `json:"state"`
	requests.Owned
}

// Objects are what owners of this cluster are compared with.
type Objects struct {
	Cluster  string // its uid
	Volumes  []*corev1.PersistentVolume
	Claims   []*corev1.PersistentVolumeClaim
	Complete bool // all volumes and claims are there
}

// SetStates compares owners with the objects of the cluster.
func (o Objects) SetStates(items []OwnerItem) {
	claimOf, claims := map[string][]types.UID{}, map[types.UID]bool{}
	for _, volume := range o.Volumes {
		claimOf[volume.Name] = volumes.ClaimsOf(volume)
	}
	for _, claim := range o.Claims {
		claims[claim.UID] = true
	}
	for i := range items {
		uid := types.UID(items[i].ClaimUID)
		exists := claims[uid] || slices.Contains(claimOf[items[i].Volume], uid)
		items[i].State = o.state(items[i].Owned, exists)
	}
}

func (o Objects) state(owned requests.Owned, exists bool) OwnerState {
	switch {
	case owned.Unreadable:
		return Unreadable
	case owned.Retained:
		return Retained
	case owned.Cluster == o.Cluster && !exists && o.Complete:
		return Gone
	case owned.Leaving:
		return Leaving
	case owned.Cluster != o.Cluster:
		return Elsewhere
	case exists:
		return Live
	}
	return Unknown
}

// ListOwners lists the ledgers of file systems by path. With an error the list has what others have answered.
func (r Runner) ListOwners(ctx context.Context, fileSystems []string) ([]OwnerItem, error) {
	return r.owners(ctx, fileSystems, requests.Request{Do: requests.ListOwners})
}

// ReleaseCluster releases the owners of a cluster that is gone, or lists them in a dry run. Each has its
// result.
func (r Runner) ReleaseCluster(ctx context.Context, fileSystems []string, release requests.Release) ([]OwnerItem, error) {
	return r.owners(ctx, fileSystems, requests.Request{Do: requests.ReleaseCluster, Release: &release})
}

func (r Runner) owners(ctx context.Context, fileSystems []string, request requests.Request) ([]OwnerItem, error) {
	var mu sync.Mutex
	var items []OwnerItem
	err := each(fileSystems, func(id string) error {
		end, err := r.Run(ctx, id, request, func(line requests.Line) {
			mu.Lock()
			defer mu.Unlock()
			if line.Owned != nil {
				items = append(items, OwnerItem{FileSystem: id, Owned: *line.Owned})
			}
		})
		return errors.Join(err, failure(end))
	})
	slices.SortFunc(items, func(a, b OwnerItem) int {
		return cmp.Or(cmp.Compare(a.FileSystem, b.FileSystem), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Volume, b.Volume))
	})
	return items, err
}

// OwnerRows are a table of owners. The cluster is this one.
func OwnerRows(items []OwnerItem, cluster string) [][]string {
	rows := [][]string{{"FILE SYSTEM", "PATH", "STATE", "CLAIM", "SINCE", "MADE", "CLUSTER", "VOLUME"}}
	for _, item := range items {
		made, claim, since := "no", item.Namespace+"/"+item.Claim, item.Since.UTC().Format(time.RFC3339)
		if item.Made {
			made = "yes"
		}
		if item.Unreadable {
			made, claim, since = "", "", ""
		}
		rows = append(rows, []string{
			item.FileSystem, item.Path, string(item.State), claim, since, made, clusterName(item.Cluster, cluster), item.Volume,
		})
	}
	return rows
}
