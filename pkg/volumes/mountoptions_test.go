package volumes_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func withMountOptions(options ...string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) { c.MountOptions = options }
}

func TestMountOptionsAreMerged(t *testing.T) {
	const defaults = "vers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
	replaced := func(old, other string) string { return strings.Replace(defaults, old, other, 1) }
	tests := map[string]struct {
		class []string
		want  string
	}{
		"no options are the defaults":              {nil, defaults},
		"empty options are none":                   {[]string{"", " , "}, defaults},
		"others are added in their order":          {[]string{"noatime", "actimeo=30"}, defaults + ",noatime,actimeo=30"},
		"one string may hold several":              {[]string{"noatime, actimeo=30"}, defaults + ",noatime,actimeo=30"},
		"a value replaces the default's":           {[]string{"rsize=65536"}, replaced("rsize=1048576", "rsize=65536")},
		"the default again changes nothing":        {[]string{"hard", "timeo=600"}, defaults},
		"vers is the kernel's spelling":            {[]string{"vers=4.0"}, replaced("vers=4.1", "vers=4.0")},
		"nfsvers becomes vers":                     {[]string{"nfsvers=4.0"}, replaced("vers=4.1", "vers=4.0")},
		"v4.0 becomes vers":                        {[]string{"v4.0"}, replaced("vers=4.1", "vers=4.0")},
		"the default in another spelling is it":    {[]string{"nfsvers=4.1", "v4.1"}, defaults},
		"version 4.2 is left to the server":        {[]string{"nfsvers=4.2"}, replaced("vers=4.1", "vers=4.2")},
		"soft replaces hard":                       {[]string{"soft"}, replaced("hard", "soft")},
		"softerr replaces hard":                    {[]string{"softerr"}, replaced("hard", "softerr")},
		"a flag replaces its opposite":             {[]string{"resvport"}, replaced("noresvport", "resvport")},
		"of two that exclude another the last one": {[]string{"ro", "rw"}, defaults + ",rw"},
		"reading only is possible":                 {[]string{"ro"}, defaults + ",ro"},
		"nolock and lock are one":                  {[]string{"nolock,lock"}, defaults + ",lock"},
		"what NFS 4 ignores is kept": {
			[]string{"_netdev,nofail,defaults,x-systemd.automount,intr,retry=5,local_lock=none,comment=x"},
			defaults + ",_netdev,nofail,defaults,x-systemd.automount,intr,retry=5,local_lock=none,comment=x",
		},
		"what NFS 4 has is kept": {
			[]string{"noatime,nodiratime,lookupcache=pos,actimeo=1,nosharecache,fsc,nordirplus,write=eager,softreval"},
			defaults + ",noatime,nodiratime,lookupcache=pos,actimeo=1,nosharecache,fsc,nordirplus,write=eager,softreval",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			class := parseClass(t, newClass(nil, withMountOptions(tt.class...)))
			if got := strings.Join(class.MountOptions, ","); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestMountOptionsAreRefused(t *testing.T) {
	const (
		tunnel  = "leave it out: the provisioner sets port, protocol and address of the node's tunnel"
		helper  = "leave it out: it is for the EFS mount helper; volumes are plain NFS mounts through the node's encrypted tunnel"
		version = "write vers=4.1 or vers=4.0: EFS knows no version below 4"
		ascii   = "only printable ASCII without spaces is allowed"
		bg      = "leave it out: a pod that starts while its node's tunnel does not answer would run without its volume, and write on the node's own disk"
		nfs3    = "leave it out: it is for the mount protocol of NFS 3, and EFS knows no version below 4"
		unknown = "leave it out: NFS 4 has no such mount option, so no pod could mount the volume"
		user    = "leave it out: it forbids programs, setuid bits or devices in the volume, and only root mounts volumes; write noexec, nosuid or nodev if that is meant"
		owner   = "leave it out: each mount would change the owner or the mode of the volume's directory; write uid, gid and directory_perms as parameters of the class"
	)
	tests := map[string]string{ // option -> why
		"port=2049": tunnel, "proto=tcp": tunnel, "tcp": tunnel, "udp": tunnel, "rdma": tunnel, "addr=10.0.0.1": tunnel,
		"tls": helper, "notls": helper, "tlsport=20049": helper, "iam": helper, "az=us-east-1a": helper, "azid=use1-az1": helper,
		"accesspoint=fsap-1": helper, "awsprofile=x": helper, "awscredsuri=/x": helper, "rolearn=x": helper, "jwtpath=x": helper,
		"crossaccount": helper, "mounttargetip=10.0.0.4": helper, "region=us-east-1": helper, "netns=x": helper, "cafile=x": helper,
		"verify=2": helper, "ocsp": helper, "noocsp": helper, "stunnel": helper, "nodirects3read": helper, "nos3readcache": helper,
		"nconnect=4": "leave it out: EFS does not support several connections for one mount",
		"sec=sys":    "leave it out: EFS has no Kerberos; the connection is encrypted by its tunnel",
		"vers=3":     version, "nfsvers=3": version, "v3": version, "nfsvers=2": version, "nfsvers=": version, "nfsvers": version,
		"nfsvers=4.10": version, "nfsvers=latest": version,
		"minorversion=0": "write vers=4.0",
		"bg":             bg, "background": bg, "X-mount.subdir=a": "leave it out: pods would use another directory than the volume's",
		"X-mount.owner=1000": owner, "X-mount.group=1000": owner, "X-mount.mode=0777": owner,
		"mountport=635": nfs3, "mountvers=3": nfs3, "mountproto=udp": nfs3, "mounthost=x": nfs3, "mountaddr=10.0.0.1": nfs3,
		"clientaddr=10.0.0.1": "leave it out: it is the address of one node, and all nodes mount the volume",
		"xprtsec=tls":         "leave it out: the connection is encrypted by its tunnel", "source=x": tunnel,
		"user": user, "users": user, "owner": user, "group": user,
		"remount": unknown, "bind": unknown, "rbind": unknown, "private": unknown, "loop": unknown, "noatimes": unknown, "lookup_cache=none": unknown,
		"rsize=1M": "write a number after rsize=", "timeo": "write a number after timeo=", "actimeo=": "write a number after actimeo=",
		"hard=true": "write hard without a value", "lookupcache=yes": "write one of these after lookupcache=: all, none, pos, positive",
		"no atime": ascii, "noatime\n": "", "x\x00y": ascii, "ä": ascii, "port =1": ascii,
	}
	for option, why := range tests {
		t.Run(option, func(t *testing.T) {
			_, err := volumes.ParseClass(newClass(nil, withMountOptions("noatime,"+option)))
			if why == "" {
				wantRefusal(t, err, "")
				return
			}
			wantRefusal(t, err, `storage class "efs": mount option `+quote(option)+`: `+why)
		})
	}
}

// TestHarmfulMountOption is about volumes that exist: of an older class, edited by hand, or imported.
func TestHarmfulMountOption(t *testing.T) {
	const bg = `mount option "bg": leave it out: a pod that starts while its node's tunnel does not answer would run without its volume, and write on the node's own disk`
	tests := map[string]struct {
		options    []string
		annotation string
		want       string
	}{
		"none":                          {nil, "", ""},
		"those of a class":              {[]string{"vers=4.1", "hard", "noatime", "port=20490"}, "", ""},
		"one that no pod can mount":     {[]string{"vers=3", "port=20490"}, "", ""}, // its pods say so
		"bg":                            {[]string{"rw", "bg", "hard"}, "", bg},
		"bg among several":              {[]string{"rw, bg,hard"}, "", bg},
		"a word that has it":            {[]string{"bgx"}, "", ""},
		"bg that kubelet does not read": {[]string{"bg"}, "hard,port=20490", ""},
		"bg in the old annotation":      {[]string{"hard"}, "hard,bg,port=20490", bg},
		"a directory within the volume": {[]string{"X-mount.subdir=a"}, "", `mount option "X-mount.subdir=a": leave it out: pods would use another directory than the volume's`},
		"a comment for another program": {[]string{"X-mount.mkdir", "x-systemd.automount"}, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{MountOptions: tt.options}}
			if tt.annotation != "" {
				volume.Annotations = map[string]string{corev1.MountOptionAnnotation: tt.annotation}
			}
			if got := volumes.HarmfulMountOption(volume); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestVolumeBegunWithAHarmfulMountOptionIsMadeWithoutIt has an operation that an earlier version began.
func TestVolumeBegunWithAHarmfulMountOptionIsMadeWithoutIt(t *testing.T) {
	operation := everything(t)
	operation.Record = bytes.Replace(operation.Record, []byte(",noatime"), []byte(",bg,noatime"), 1)
	volume, err := volumes.FromOperation(operation, 20490, 0, provisioner)
	if err != nil || slices.Contains(volume.Spec.MountOptions, "bg") || !slices.Contains(volume.Spec.MountOptions, "noatime") {
		t.Errorf("got %+v, %v", volume, err)
	}
}
