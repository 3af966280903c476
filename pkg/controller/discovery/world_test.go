package discovery

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

const namespace = "efs-stunnel"

var (
	noon    = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	errBoom = errors.New("boom")
)

func options() Options {
	return Options{
		Namespace: namespace, Provisioner: wellknown.DefaultProvisioner, PollingInterval: time.Minute,
		Range: ports.Range{Base: 20490, Count: 10}, VPCID: "vpc-1", DNSSuffix: "efs.us-east-1.amazonaws.com",
	}
}

// fileSystem is one with a mount target in each of the zones.
func fileSystem(id string, zones ...string) efs.FileSystem {
	fs := efs.FileSystem{ID: id, State: efs.Available, Tags: map[string]string{"team": "a"}}
	for i, zone := range zones {
		fs.MountTargets = append(fs.MountTargets, efs.MountTarget{
			SubnetID: "subnet-" + zone, VPCID: "vpc-1", ZoneName: zone,
			Address: netip.AddrFrom4([4]byte{10, 0, byte(i), 4}), State: efs.Available,
		})
	}
	return fs
}

func listing(at int, fileSystems ...efs.FileSystem) efs.Listing {
	return efs.Listing{FileSystems: fileSystems, Complete: true, ReadAt: noon.Add(time.Duration(at) * time.Minute)}
}

func found(l efs.Listing) findings {
	return findings{over: true, listing: l, succeeded: l.ReadAt}
}

func target(port int) ports.Target {
	return ports.Target{
		Name: "shared", Port: port,
		AddressBySubnet: map[string]netip.Addr{"subnet-a": netip.MustParseAddr("10.0.0.4")},
		AddressByZone:   map[string]netip.Addr{"a": netip.MustParseAddr("10.0.0.4")},
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

// world is a state in which nothing is wrong with what it is given.
func world(table *ports.Table, edits ...func(*state)) state {
	s := state{pinned: document{table: &ports.Table{}}, claims: map[string]*corev1.PersistentVolumeClaim{}, now: noon}
	s.findings.over = true
	if table != nil {
		s.table = document{object: tableMap(table), table: table}
	}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// rooted adds healthy root volumes and root claims.
func rooted(ids map[string]int) func(*state) {
	return func(s *state) {
		for id, port := range ids {
			v, c := boundRoot(id, port)
			s.volumes = append(s.volumes, v)
			s.claims[c.Name] = c
		}
		slices.SortFunc(s.volumes, func(a, b *corev1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	}
}

func boundRoot(id string, port int) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	v, c := volumes.RootVolume(id, port, namespace), volumes.RootClaim(id, namespace)
	v.UID, v.Status.Phase, v.Spec.ClaimRef.UID = types.UID("volume of "+id), corev1.VolumeBound, types.UID("claim of "+id)
	c.UID, c.Status.Phase = v.Spec.ClaimRef.UID, corev1.ClaimBound
	return v, c
}

// claimed is a volume of somebody's claim.
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

// outline is what a test says of a plan.
type outline struct {
	Held, Write bool
	Ports       map[string]int
	Roots       []string // file system: action, …
	Corrections []string // volume: from -> to
	Ask         []string
	Told        []string // reason of news, then of complaints
}

func outlineOf(p plan) outline {
	o := outline{Held: p.held, Write: p.write, Ask: p.ask}
	for id, t := range p.table.Targets {
		if o.Ports == nil {
			o.Ports = map[string]int{}
		}
		o.Ports[id] = t.Port
	}
	for _, w := range p.roots {
		line := w.pair.FileSystemID + ":"
		for _, step := range w.steps() {
			line += " " + string(step.Action) + ","
		}
		if w.mustFreeClaim() {
			line += " after its jobs"
		}
		o.Roots = append(o.Roots, strings.TrimSuffix(line, ","))
	}
	for _, w := range p.corrections {
		o.Corrections = append(o.Corrections, fmt.Sprintf("%s: %d -> %d", w.is.Name, w.why.From, w.why.To))
	}
	for _, n := range p.news {
		o.Told = append(o.Told, n.reason)
	}
	for _, c := range p.complaints {
		o.Told = append(o.Told, c.reason)
	}
	return o
}
