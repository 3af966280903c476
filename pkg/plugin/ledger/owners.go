package ledger

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// OwnerState names what an entry of the ledger means.
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

// Objects has what owners of this cluster are compared with.
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

// ListOwners lists the ledgers of file systems by path, or releases the owners of a cluster that is gone, if the
// release is not nil. With an error the list has what others have answered.
func (r Runner) ListOwners(ctx context.Context, fileSystems []string, release *requests.Release) (items []OwnerItem, err error) {
	request := requests.Request{Do: requests.ListOwners}
	if release != nil {
		request = requests.Request{Do: requests.ReleaseCluster, Release: release}
	}
	answers, err := r.Ask(ctx, ToEach(fileSystems, request))
	for id, answer := range answers {
		for _, owned := range answer.Owned {
			items = append(items, OwnerItem{FileSystem: id, Owned: owned})
		}
	}
	slices.SortFunc(items, func(a, b OwnerItem) int {
		return cmp.Or(cmp.Compare(a.FileSystem, b.FileSystem), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Volume, b.Volume))
	})
	return items, err
}

// OwnerRows returns a table of owners. The cluster is this one.
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
