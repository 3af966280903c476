package volumes_test

import (
	"strings"
	"testing"

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
		"no atime":       ascii, "noatime\n": "", "x\x00y": ascii, "ä": ascii, "port =1": ascii,
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
