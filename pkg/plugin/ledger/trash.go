package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// TrashItem is a directory in the trash of a file system.
type TrashItem struct {
	FileSystem string `json:"fileSystem"`
	requests.Trashed
}

// ListTrash lists the trash of file systems, each in the order of deletion. With an error the list has what
// others have answered.
func (r Runner) ListTrash(ctx context.Context, fileSystems []string) (items []TrashItem, err error) {
	answers, err := r.Ask(ctx, ToEach(fileSystems, requests.Request{Do: requests.ListTrash}))
	for id, answer := range answers {
		for _, trashed := range answer.Trashed {
			items = append(items, TrashItem{id, trashed})
		}
	}
	slices.SortFunc(items, func(a, b TrashItem) int {
		return cmp.Or(cmp.Compare(a.FileSystem, b.FileSystem), a.Deleted.Compare(b.Deleted), cmp.Compare(a.Slot, b.Slot))
	})
	return items, err
}

// TrashRows returns a table of the trash. The cluster is this one.
func TrashRows(items []TrashItem, cluster string, now time.Time) [][]string {
	rows := [][]string{{"FILE SYSTEM", "CLAIM", "CLAIM UID", "DELETED", "KEPT UNTIL", "CLUSTER", "PATH", "VOLUME"}}
	for _, item := range items {
		if item.Unknown {
			rows = append(rows, []string{item.FileSystem, "unknown", "", "", "a person removes it", "", "", item.Slot})
			continue
		}
		rows = append(rows, []string{
			item.FileSystem, item.Namespace + "/" + item.Claim, item.ClaimUID, item.Deleted.UTC().Format(time.RFC3339),
			item.until(now), clusterName(item.Cluster, cluster), item.Path, item.Volume,
		})
	}
	return rows
}

func (item TrashItem) until(now time.Time) string {
	switch {
	case item.Forever:
		return "forever"
	case !item.Due.After(now):
		return "the next sweep"
	}
	return item.Due.UTC().Format(time.RFC3339)
}

func clusterName(uid, own string) string {
	if uid == own {
		return "this"
	}
	return uid
}

// TrashChoice has what a user means by the arguments of a command.
type TrashChoice struct {
	Cluster   string
	Namespace string   // "" is all
	Claims    []string // names, or uids, of claims of the namespace; none is all
}

// Select finds what is chosen. A claim that has nothing in the trash is an error.
func (c TrashChoice) Select(items []TrashItem) ([]TrashItem, error) {
	var chosen []TrashItem
	found := map[string]bool{}
	for _, item := range items {
		if item.Unknown || item.Cluster != c.Cluster || c.Namespace != "" && item.Namespace != c.Namespace {
			continue
		}
		if len(c.Claims) == 0 || slices.Contains(c.Claims, item.Claim) || slices.Contains(c.Claims, item.ClaimUID) {
			chosen = append(chosen, item)
			found[item.Claim], found[item.ClaimUID] = true, true
		}
	}
	missing := slices.DeleteFunc(slices.Clone(c.Claims), func(claim string) bool { return found[claim] })
	if len(missing) > 0 {
		return nil, fmt.Errorf("the trash has nothing of %s in namespace %s: see kubectl efs-stunnel trash list", strings.Join(missing, ", "), c.Namespace)
	}
	return chosen, nil
}

// Removal returns the requests that remove what was chosen, and nothing that came to the trash since it was listed.
func (c TrashChoice) Removal(chosen []TrashItem) Requests {
	removal := Requests{}
	for _, item := range chosen {
		if removal[item.FileSystem] == nil {
			selection := &requests.Selection{Cluster: c.Cluster, Namespace: c.Namespace}
			removal[item.FileSystem] = []requests.Request{{Do: requests.EmptyTrash, Selection: selection}}
		}
		s := removal[item.FileSystem][0].Selection
		if len(c.Claims) > 0 && !slices.Contains(s.Claims, item.ClaimUID) {
			s.Claims = append(s.Claims, item.ClaimUID)
		}
		if item.Deleted.After(s.Until) {
			s.Until = item.Deleted
		}
	}
	return removal
}

// Restore is a claim that is to get the directory of a deleted claim.
type Restore struct {
	Cluster     string
	Provisioner string
	Namespace   *corev1.Namespace
	Claim       string // the deleted one: its name, or its uid
	Name        string // of the new claim
	VolumeName  string // its label, "" for none
	Size        resource.Quantity
	AccessMode  corev1.PersistentVolumeAccessMode
}

// Find finds the directory of the deleted claim.
func (r Restore) Find(items []TrashItem) (TrashItem, error) {
	var found []TrashItem
	elsewhere := ""
	for _, item := range items {
		if item.Unknown || item.Claim != r.Claim && item.ClaimUID != r.Claim {
			continue
		}
		switch {
		case item.Cluster != r.Cluster:
			elsewhere = "cluster " + item.Cluster
		case item.Namespace != r.Namespace.Name:
			elsewhere = "namespace " + item.Namespace
		default:
			found = append(found, item)
		}
	}
	switch {
	case len(found) == 0 && elsewhere != "":
		return TrashItem{}, fmt.Errorf("what claim %s left belongs to %s: it can be restored there only", r.Claim, elsewhere)
	case len(found) == 0:
		return TrashItem{}, fmt.Errorf("the trash has nothing of claim %s in namespace %s: see kubectl efs-stunnel trash list", r.Claim, r.Namespace.Name)
	}
	return r.newest(found)
}

// newest returns the last incarnation of a claim's volume, which is what a mount Job restores.
func (r Restore) newest(found []TrashItem) (TrashItem, error) {
	last := slices.MaxFunc(found, func(a, b TrashItem) int { return a.Deleted.Compare(b.Deleted) })
	var uids []string
	for _, item := range found {
		if !slices.Contains(uids, item.ClaimUID) {
			uids = append(uids, item.ClaimUID)
		}
	}
	if len(uids) > 1 {
		return TrashItem{}, fmt.Errorf("the trash has several claims %s: name one by its uid: %s", r.Claim, strings.Join(uids, ", "))
	}
	return last, nil
}

// Object returns the new claim, unless the manager or a mount Job would refuse it.
func (r Restore) Object(item TrashItem, object *storagev1.StorageClass) (*corev1.PersistentVolumeClaim, volumes.Class, error) {
	if object.Provisioner != r.Provisioner {
		return nil, volumes.Class{}, fmt.Errorf("storage class %s is of provisioner %s, not %s: name another with --class", object.Name, object.Provisioner, r.Provisioner)
	}
	class, err := volumes.ParseClass(object)
	if err != nil {
		return nil, class, err
	}
	if item.NamespaceUID != "" && item.NamespaceUID != string(r.Namespace.UID) && !class.Rules.ShareAcrossNamespaces {
		return nil, class, fmt.Errorf("what claim %s left belongs to an earlier namespace %s, which was deleted: only a class with share_across_namespaces gives it to this one", r.Claim, r.Namespace.Name)
	}
	claim := r.claim(item, class.Name)
	checked := claim.DeepCopy()
	checked.UID = types.UID(item.ClaimUID) // of the same form as the one that it will get
	if _, err := volumes.ParseClaim(checked, class); err != nil {
		return nil, class, fmt.Errorf("storage class %s refuses such a claim: %w", class.Name, err)
	}
	return claim, class, nil
}

func (r Restore) claim(item TrashItem, class string) *corev1.PersistentVolumeClaim {
	labels := map[string]string{wellknown.LabelFileSystemID: item.FileSystem}
	if r.VolumeName != "" {
		labels[wellknown.LabelVolumeName] = r.VolumeName
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace.Name, Name: r.Name, Annotations: map[string]string{wellknown.AnnotationRestore: item.ClaimUID},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{r.AccessMode},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: r.Size}},
			Selector:         &metav1.LabelSelector{MatchLabels: labels},
		},
	}
}

// Restored reports whether a claim has its volume, and what the manager says it waits for. The error says why it will
// not get one as it is.
func Restored(claim *corev1.PersistentVolumeClaim) (bound bool, waits string, err error) {
	if why := claim.Annotations[wellknown.AnnotationRejectReason]; why != "" {
		return false, "", errors.New(why)
	}
	for _, c := range claim.Status.Conditions {
		if c.Type == wellknown.ConditionProvisioned && c.Status == corev1.ConditionFalse {
			waits = c.Reason + ": " + c.Message
		}
	}
	return claim.Status.Phase == corev1.ClaimBound, waits, nil
}

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
