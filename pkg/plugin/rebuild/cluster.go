// Package rebuild plans the volumes and claims of directories that exist: those that the ledger has of
// a lost cluster, and those that nobody owns yet.
//
//	Rebuild, Import --Item--> PrintObjects, or the ledger and the apiserver
//
// Every plan depends on its arguments only, and nothing that exists is changed by one.
package rebuild

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Cluster is the one that gets volumes, and what it has, by name.
type Cluster struct {
	UID         string // as ledgers have it
	Provisioner string
	Targets     map[string]ports.Target
	Volumes     map[string]*corev1.PersistentVolume
	Claims      map[types.NamespacedName]*corev1.PersistentVolumeClaim
	Namespaces  map[string]*corev1.Namespace
	Classes     map[string]*storagev1.StorageClass
	// Points are the access points in AWS; nil if they were not given.
	Points []AccessPoint
}

// Choice has the fields of a volume that neither its directory nor the ledger has.
type Choice struct {
	Class      string
	Policy     corev1.PersistentVolumeReclaimPolicy
	Size       resource.Quantity
	AccessMode corev1.PersistentVolumeAccessMode
}

// class returns a storage class of the provisioner. The error has the remedy.
func (c Cluster) class(name string) (volumes.Class, error) {
	object := c.Classes[name]
	switch {
	case name == "":
		return volumes.Class{}, errors.New("its class is not known: name one with --class")
	case object == nil:
		return volumes.Class{}, fmt.Errorf("there is no storage class %q: create it, or name another with --class", name)
	case object.Provisioner != c.Provisioner:
		return volumes.Class{}, fmt.Errorf("storage class %q is of provisioner %q, not %q: name another with --class", name, object.Provisioner, c.Provisioner)
	}
	return volumes.ParseClass(object)
}

// plan plans the objects of a volume that is, or becomes, an owner.
func (c Cluster) plan(item *Item, owner requests.Volume, accessPoint string, choice Choice) {
	existing, err := c.existing(volumes.Existing{
		Name: owner.Name, OwnerUID: owner.ClaimUID, FileSystemID: item.FileSystem, Path: owner.Path, AccessPointID: accessPoint,
		Namespace: owner.Namespace, Claim: owner.Claim, GID: owner.GID, Policy: choice.Policy,
	}, owner.Class, choice)
	if err != nil {
		item.end(Refused, err.Error())
		return
	}
	c.add(item, existing)
}

// existing completes the description of a volume from its class and file system.
func (c Cluster) existing(e volumes.Existing, class string, choice Choice) (volumes.Existing, error) {
	target, ok := c.Targets[e.FileSystemID]
	if !ok {
		return e, fmt.Errorf("file system %q is not in the table", e.FileSystemID)
	}
	parsed, err := c.class(class)
	if err != nil {
		return e, err
	}
	e.Class, e.Port = parsed, target.Port
	if parsed.EnforceZoneAffinity {
		e.Zone = target.AvailabilityZone
	}
	e.Size, e.AccessModes = choice.Size, []corev1.PersistentVolumeAccessMode{choice.AccessMode}
	if parsed.AccessPoints == nil {
		e.AccessPointID = ""
		return e, nil
	}
	e.AccessPointID, err = c.point(e)
	e.PointPort = target.AccessPoints[e.AccessPointID].Port
	return e, err
}

// point returns the access point on the directory of a volume: the one that it is to have, or that was made for it, with
// the volume's name as client token. The error has the remedy.
func (c Cluster) point(e volumes.Existing) (id string, err error) {
	for _, point := range c.Points {
		if point.FileSystem == e.FileSystemID && point.Path == e.Path && (point.ID == e.AccessPointID || e.AccessPointID == "" && point.Token == e.Name) {
			return point.ID, nil
		}
	}
	if c.Points == nil {
		return "", fmt.Errorf("storage class %q makes access points: say which there are with --access-points", e.Class.Name)
	}
	return "", fmt.Errorf("no access point in --access-points was made for it: make one on its directory by aws efs create-access-point, "+
		"with --client-token %s and the directory's owner as --posix-user; then list them again", e.Name)
}

// add plans the objects that are missing. Nothing that exists is overwritten, and nothing is planned for a
// namespace that does not exist: a volume that is reserved for it is the data of whoever creates it.
//
//	volume    claim              what is done
//	missing   missing            both are created
//	missing   names the volume   the volume is created for it
//	missing   another            refused
//	there     missing            the claim is created, unless the volume is another's
//	there     names the volume   nothing
//	there     another            refused
func (c Cluster) add(item *Item, e volumes.Existing) {
	claim := c.Claims[types.NamespacedName{Namespace: e.Namespace, Name: e.Claim}]
	if claim != nil && claim.Spec.VolumeName != e.Name {
		item.end(Refused, otherClaim(claim))
		return
	}
	if claim != nil {
		e.ClaimUID, e.AccessModes = claim.UID, claim.Spec.AccessModes
		if request := claim.Spec.Resources.Requests[corev1.ResourceStorage]; !request.IsZero() {
			e.Size = request
		}
	}
	newVolume, newClaim, err := e.Objects(c.Provisioner)
	if err != nil {
		item.end(Refused, err.Error())
		return
	}
	if _, ok := c.Namespaces[e.Namespace]; !ok {
		item.end(Left, "namespace "+e.Namespace+" does not exist: create it, and run this command again")
		return
	}
	if volume := c.Volumes[e.Name]; volume == nil {
		item.NewVolume = newVolume
	} else if why := c.otherVolume(volume, e); why != "" {
		item.end(Refused, why)
		return
	}
	item.AccessPoint = e.AccessPointID
	if claim == nil {
		item.NewClaim = newClaim
	}
}

func otherClaim(claim *corev1.PersistentVolumeClaim) string {
	name := claim.Namespace + "/" + claim.Name
	if claim.Spec.VolumeName == "" {
		return "claim " + name + " exists, without a volume: it is left alone"
	}
	return "claim " + name + " exists, with volume " + claim.Spec.VolumeName + ": it is left alone"
}

// otherVolume returns why a volume that exists is not the one that is described, or "".
func (c Cluster) otherVolume(object *corev1.PersistentVolume, e volumes.Existing) string {
	volume, ref := volumes.Read(object, c.Provisioner), object.Spec.ClaimRef
	switch {
	case volume.Kind != volumes.Provisioned || volume.FileSystemID != e.FileSystemID || volume.Path != e.Path:
		return "volume " + e.Name + " exists, and has another directory: it is left alone"
	case volume.AccessPointID != e.AccessPointID:
		return "volume " + e.Name + " exists, and has another access point, or none: it is left alone"
	case ref == nil || ref.Namespace != e.Namespace || ref.Name != e.Claim:
		return "volume " + e.Name + " exists, and is not reserved for the claim: it is left alone"
	case ref.UID != e.ClaimUID && (ref.UID != "" || object.Status.Phase == corev1.VolumeReleased):
		return "volume " + e.Name + " exists, and its claim was deleted: it is left alone"
	}
	return ""
}

// State is the outcome for one directory.
type State string

// The states.
const (
	Planned State = "planned" // objects are created, or an owner is recorded
	Exists  State = "exists"  // nothing is to be done
	Left    State = "left"    // it is not wanted; the note says why
	Refused State = "refused" // it was asked for, but cannot be had
	Whose   State = "whose?"  // nothing vouches for its claim: an administrator has to name it
	Done    State = "done"
	Failed  State = "failed"
)

// Item is a directory that is to be a volume.
type Item struct {
	FileSystem string `json:"fileSystem"`
	Path       string `json:"path"`
	Namespace  string `json:"namespace,omitempty"`
	Claim      string `json:"claim,omitempty"`
	Volume     string `json:"volume,omitempty"`
	// AccessPoint is the volume's; "" for a volume of a directory.
	AccessPoint string `json:"accessPoint,omitempty"`
	State       State  `json:"state"`
	Note        string `json:"note,omitempty"`

	// Adoption makes the volume an owner; nil if it is one.
	Adoption  *requests.Volume              `json:"-"`
	NewVolume *corev1.PersistentVolume      `json:"-"` // nil if there is one
	NewClaim  *corev1.PersistentVolumeClaim `json:"-"` // nil if there is one
}

// end sets the last state of an item, and drops what would have been done.
func (i *Item) end(state State, note string) {
	i.State, i.Note = state, note
	i.Adoption, i.NewVolume, i.NewClaim = nil, nil, nil
}

// Count returns the number of items in one of some states.
func Count(items []Item, states ...State) (count int) {
	for _, item := range items {
		if slices.Contains(states, item.State) {
			count++
		}
	}
	return count
}

// Rows returns a table of items.
func Rows(items []Item) [][]string {
	rows := [][]string{{"FILE SYSTEM", "PATH", "CLAIM", "VOLUME", "STATE", "NOTE"}}
	for _, item := range items {
		claim := item.Namespace + "/" + item.Claim
		if claim == "/" {
			claim = "-"
		}
		rows = append(rows, []string{item.FileSystem, item.Path, claim, item.Volume, string(item.State), item.Note})
	}
	return rows
}

// PrintObjects prints the objects that items would create, as kubectl apply reads them: volumes first. The
// format is json, or YAML for any other. What paths contain cannot harm a terminal.
func PrintObjects(out io.Writer, format string, items []Item) error {
	objects := objectsOf(items)
	if format == "json" {
		list := corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
		for _, object := range objects {
			list.Items = append(list.Items, runtime.RawExtension{Object: object})
		}
		data, err := json.MarshalIndent(list, "", "  ")
		if err == nil {
			_, err = out.Write(append(escaped(data, jsonEscape), '\n'))
		}
		return err
	}
	for _, object := range objects {
		text, err := document(object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

func objectsOf(items []Item) []runtime.Object {
	var volumes, claims []runtime.Object
	for _, item := range items {
		if item.NewVolume != nil {
			volume := item.NewVolume.DeepCopy()
			volume.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
			volumes = append(volumes, volume)
		}
		if item.NewClaim != nil {
			claim := item.NewClaim.DeepCopy()
			claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
			claims = append(claims, claim)
		}
	}
	return append(volumes, claims...)
}

// document returns an object as YAML. An object with characters that are not printed is in the form of JSON, in
// which each of them is inside a string, and so can be an escape.
func document(object runtime.Object) ([]byte, error) {
	text, err := yaml.Marshal(object)
	if err != nil || bytes.Equal(text, escaped(text, yamlEscape)) {
		return text, err
	}
	text, err = json.Marshal(object)
	return append(escaped(text, yamlEscape), '\n'), err
}

// escaped writes what is not printed, except line ends, as escapes.
func escaped(text []byte, escape func(rune) string) []byte {
	var out bytes.Buffer
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if text = text[size:]; unicode.IsPrint(r) || r == '\n' {
			out.WriteRune(r)
		} else {
			out.WriteString(escape(r))
		}
	}
	return out.Bytes()
}

func jsonEscape(r rune) (text string) {
	for _, unit := range utf16.Encode([]rune{r}) {
		text += fmt.Sprintf(`\u%04x`, unit)
	}
	return text
}

// yamlEscape knows no surrogates.
func yamlEscape(r rune) string { return fmt.Sprintf(`\U%08x`, r) }
