package table

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const namespace = "efs-stunnel"

var (
	noon    = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	errBoom = errors.New("boom")
)

func options() Options {
	return Options{
		Namespace: namespace, Provisioner: wellknown.DefaultProvisioner, PollingInterval: time.Minute, Now: time.Now,
		Demand: func() (d ports.Demand) { return d }, Made: func() (d ports.Demand) { return d },
		Range: ports.Range{Base: 20490, Count: 10}, VPCID: "vpc-1", DNSSuffix: "efs.us-east-1.amazonaws.com",
	}
}

// fileSystem is one with a mount target in each of the zones.
func fileSystem(id string, zones ...string) efs.FileSystem {
	fs := efs.FileSystem{ID: id, State: efs.Available, Tags: map[string]string{"team": "a"}}
	for i, zone := range zones {
		fs.MountTargets = append(fs.MountTargets, efs.MountTarget{
			SubnetID: "subnet-" + zone, VPCID: "vpc-1", ZoneName: zone,
			Address: addressOf(i, id), State: efs.Available,
		})
	}
	return fs
}

// addressOf differs for file systems whose ids have different ends.
func addressOf(zone int, id string) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(zone), id[len(id)-1]})
}

func listing(at int, fileSystems ...efs.FileSystem) efs.Listing {
	return efs.Listing{FileSystems: fileSystems, Complete: true, ReadAt: noon.Add(time.Duration(at) * time.Minute)}
}

func found(l efs.Listing) inventory {
	return inventory{polled: true, listing: l, succeeded: l.ReadAt}
}

// target is that of fs-1 with port 20490, of fs-2 with 20491, and so on.
func target(port int) ports.Target {
	address := addressOf(0, string(rune('1'+port-20490)))
	return ports.Target{
		Name: "shared", Port: port,
		AddressBySubnet: map[string]netip.Addr{"subnet-a": address},
		AddressByZone:   map[string]netip.Addr{"a": address},
	}
}

func tableOf(targets map[string]ports.Target) *ports.Table {
	return &ports.Table{Targets: targets, LastUpdate: noon}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}, Data: data}
}

func tableMap(table *ports.Table) *corev1.ConfigMap {
	return configMap(wellknown.TargetsConfigMap, map[string]string{wellknown.TargetsKey: string(ports.Encode(*table))})
}

// fixture is what the loops observe.
type fixture struct {
	state
	claims map[string]*corev1.PersistentVolumeClaim // root claims, by name
	jobs   map[string][]*batchv1.Job                // deletable ones, by file system
}

// given is a fixture in which nothing is wrong with what it is given.
func given(table *ports.Table, edits ...func(*fixture)) fixture {
	f := fixture{claims: map[string]*corev1.PersistentVolumeClaim{}}
	f.pinned, f.now, f.live, f.inventory.polled = document{table: &ports.Table{}}, noon, true, true
	if table != nil {
		f.table = document{object: tableMap(table), table: table}
	}
	for _, edit := range edits {
		edit(&f)
	}
	return f
}

// roots are found as observeRoots does.
func (f fixture) roots() map[string]root {
	found := map[string]root{}
	for _, v := range f.volumes {
		if id, ok := rootID(v.Name); ok {
			found[id] = root{RootPair: volumes.RootPair{Volume: v}}
		}
	}
	for name, claim := range f.claims {
		if id, ok := rootID(name); ok {
			r := found[id]
			r.Claim = claim
			found[id] = r
		}
	}
	for id, jobs := range f.jobs {
		r := found[id]
		r.jobs = jobs
		found[id] = r
	}
	return found
}

// plans are those of all loops.
type plans struct {
	plan
	roots     []root
	conflicts []notice
	ports     []portChange
}

func (f fixture) plan(o Options) plans {
	p := plans{plan: o.plan(f.state)}
	if p.decision == nil {
		return p
	}
	p.roots, p.conflicts = o.planRoots(p.decision, f.roots())
	p.ports = planPorts(p.decision.corrections, func(name string) *corev1.PersistentVolume {
		if i := slices.IndexFunc(f.volumes, func(v *corev1.PersistentVolume) bool { return v.Name == name }); i >= 0 {
			return f.volumes[i]
		}
		return nil
	}, p.roots)
	return p
}

// rooted adds healthy root volumes and root claims.
func rooted(ids map[string]int) func(*fixture) {
	return func(s *fixture) {
		for id, port := range ids {
			v, c := boundRoot(id, port)
			s.volumes = append(s.volumes, v)
			s.claims[c.Name] = c
		}
		slices.SortFunc(s.volumes, func(a, b *corev1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	}
}

func boundRoot(id string, port int) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	v, c := volumes.RootObjects(id, port, namespace)
	v.UID, v.Status.Phase, v.Spec.ClaimRef.UID = types.UID("volume of "+id), corev1.VolumeBound, types.UID("claim of "+id)
	c.UID, c.Status.Phase = v.Spec.ClaimRef.UID, corev1.ClaimBound
	return v, c
}

// claimed is the volume of a user's claim.
func claimed(name, id string, port int) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{wellknown.AnnotationFileSystemID: id}},
		Spec: corev1.PersistentVolumeSpec{
			MountOptions: []string{"hard", fmt.Sprintf("port=%d", port)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: "/a"},
			},
		},
	}
}

// outline is what a test says of plans.
type outline struct {
	Held, Write bool
	Ports       map[string]int
	Roots       []string // file system: action, …
	Corrections []string // volume: from -> to
	Missing     []string
	Events      []string // reasons: of notices, then of conflicts
}

func outlineOf(p plans) outline {
	o := outline{Held: p.decision == nil, Write: p.write, Missing: p.missing}
	for id, t := range p.table.Targets {
		if o.Ports == nil {
			o.Ports = map[string]int{}
		}
		o.Ports[id] = t.Port
	}
	for _, r := range p.roots {
		line := r.FileSystemID + ":"
		for _, change := range r.changes() {
			line += " " + string(change.Action) + ","
		}
		if len(r.protecting()) > 0 {
			line += " after its jobs"
		}
		o.Roots = append(o.Roots, strings.TrimSuffix(line, ","))
	}
	for _, change := range p.ports {
		o.Corrections = append(o.Corrections, fmt.Sprintf("%s: %d -> %d", change.is.Name, change.correction.From, change.correction.To))
	}
	for _, n := range slices.Concat(p.notices, p.conflicts) {
		o.Events = append(o.Events, n.Reason)
	}
	return o
}
