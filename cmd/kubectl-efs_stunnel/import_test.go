package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// newImportCluster has directories, and a class of the default name.
func newImportCluster(t *testing.T, directories ...string) *ledgerCluster {
	t.Helper()
	c := newLedgerCluster(t)
	c.bindClaims()
	c.add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: wellknown.StorageClass}, Provisioner: wellknown.DefaultProvisioner})
	for _, d := range directories {
		if err := os.MkdirAll(filepath.Join(c.folder, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// isMade reports whether the ledger gives a directory's owners the right to remove it.
func (c *ledgerCluster) isMade(path string) bool {
	c.Helper()
	files, err := filepath.Glob(filepath.Join(c.folder, wellknown.OwnersDirectory, path, "@*"))
	if err != nil || len(files) != 1 {
		c.Fatalf("%s has the entries %v, %v", path, files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		c.Fatal(err)
	}
	return strings.Contains(string(data), `"made":true`)
}

func TestDirectoriesAreImported(t *testing.T) {
	const uid = "11111111-2222-4333-8444-555555555555"
	bound := corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}
	nfs := func(path, namespace, claim string) runtime.Object {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + uid}, Status: bound, Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				NFS: &corev1.NFSVolumeSource{Server: testFS + ".efs.us-east-1.amazonaws.com", Path: path},
			},
		}}
	}
	csi := func(handle, namespace, claim string) runtime.Object {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + uid}, Status: bound, Spec: corev1.PersistentVolumeSpec{
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "efs.csi.aws.com", VolumeHandle: handle}},
		}}
	}
	list, points := filepath.Join(t.TempDir(), "list"), filepath.Join(t.TempDir(), "points")
	for name, text := range map[string]string{
		list: "# moved from the old server\n\n team/a=/old/a/\n",
		points: `{"AccessPoints": [{"AccessPointId": "fsap-1", "FileSystemId": "` + testFS + `", "RootDirectory": {"Path": "/old/a"}},
			{"AccessPointId": "fsap-2", "FileSystemId": "fs-2", "RootDirectory": {"Path": "/old/b"}}]}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		directories []string
		objects     []runtime.Object
		args        []string
		want        map[string]string // paths by claim of namespace team
		made        bool
	}{
		"a pair":                       {[]string{"/old/a", "/old/b"}, nil, []string{"team/a=/old/a"}, map[string]string{"a": "/old/a"}, false},
		"of the namespace of the user": {[]string{"/old/a"}, nil, []string{"a=/old/a"}, map[string]string{"a": "/old/a"}, false},
		"with the right to remove":     {[]string{"/old/a"}, nil, []string{"a=/old/a", "--reclaim-policy", "Delete"}, map[string]string{"a": "/old/a"}, true},
		"a list":                       {[]string{"/old/a"}, nil, []string{"--list", list}, map[string]string{"a": "/old/a"}, false},
		"a pattern":                    {[]string{"/old/a", "/old/b"}, nil, []string{"--pattern", "/old/*"}, map[string]string{"a": "/old/a", "b": "/old/b"}, false},
		"a pattern with names":         {[]string{"/team/x-1/data"}, nil, []string{"--pattern", "/{namespace}/{claim}-?/data"}, map[string]string{"x": "/team/x-1/data"}, false},
		"of nfs-subdir-external-provisioner": {
			[]string{"/exports/team-data-0-pvc-" + uid}, []runtime.Object{nfs("/exports/team-data-0-pvc-"+uid, "team", "data-0")},
			[]string{"--from", "nfs-subdir-external-provisioner", "--base", "/exports"}, map[string]string{"data-0": "/exports/team-data-0-pvc-" + uid}, false,
		},
		"of nfs-subdir-external-provisioner, by name": {
			[]string{"/exports/team-data-pvc-" + uid}, nil,
			[]string{"--from", "nfs-subdir-external-provisioner", "--base", "/exports", "--trust-path-names"}, map[string]string{"data": "/exports/team-data-pvc-" + uid}, false,
		},
		"of efs-provisioner, by name": {
			[]string{"/persistentvolumes/data-pvc-" + uid}, nil,
			[]string{"--from", "efs-provisioner", "-n", "team", "--trust-path-names"}, map[string]string{"data": "/persistentvolumes/data-pvc-" + uid}, false,
		},
		"of efs-provisioner, by its volume": {
			[]string{"/persistentvolumes/data-pvc-" + uid}, []runtime.Object{nfs("/persistentvolumes/data-pvc-"+uid, "team", "web")},
			[]string{"--from", "efs-provisioner", "--claim-suffix", "-tls"}, map[string]string{"web-tls": "/persistentvolumes/data-pvc-" + uid}, false,
		},
		"of an access point": {
			[]string{"/old/a"}, []runtime.Object{csi("efs:"+testFS+"::fsap-1", "team", "data")},
			[]string{"--from", "aws-efs-csi-driver", "--access-points", points}, map[string]string{"data": "/old/a"}, false,
		},
		"of a static volume of the driver": {
			[]string{"/old/a"}, []runtime.Object{csi(testFS+":/old/a", "team", "data")},
			[]string{"--from", "aws-efs-csi-driver"}, map[string]string{"data": "/old/a"}, false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newImportCluster(t, tt.directories...)
			c.add(tt.objects...)
			got := invoke(t, c.Clientset, append([]string{"import"}, tt.args...)...)
			if got.code != exitHealthy || strings.Count(got.stdout, "\nkind: PersistentVolumeClaim\n") != len(tt.want) || c.writes() != 0 {
				t.Fatalf("a dry run, with %d writes: %+v", c.writes(), got)
			}
			got = invoke(t, c.Clientset, append([]string{"import", "--apply"}, tt.args...)...)
			if got.code != exitHealthy {
				t.Fatalf("%+v", got)
			}
			for claim, path := range tt.want {
				object := c.claim("team", claim)
				if object == nil {
					t.Fatalf("there is no claim %s: %+v", claim, got)
				}
				volume := c.volume(object.Spec.VolumeName)
				if volume == nil || volume.Spec.NFS.Path != path || string(volume.Spec.PersistentVolumeReclaimPolicy) == "Delete" != tt.made || c.isMade(path) != tt.made {
					t.Errorf("%+v, made: %v", volume, c.isMade(path))
				}
			}
			writes := c.writes()
			if got = invoke(t, c.Clientset, append([]string{"import", "--apply"}, tt.args...)...); got.code != exitHealthy || c.writes() != writes {
				t.Errorf("a second run made %d writes: %+v", c.writes()-writes, got)
			}
			c.expectNoJobs()
		})
	}
}

func TestWhatImportRefuses(t *testing.T) {
	tests := map[string]struct {
		args []string
		text string
	}{
		"nothing":                            {nil, "want one of: NAMESPACE/CLAIM=/path, --list"},
		"two ways":                           {[]string{"a=/old/a", "--pattern", "/old/*"}, "want one of: NAMESPACE"},
		"no pair":                            {[]string{"/old/a"}, "want NAMESPACE/CLAIM=/path"},
		"a pattern with a range":             {[]string{"--pattern", "/old/[a-z]"}, "want names, *, ?"},
		"a pattern with a name twice":        {[]string{"--pattern", "/{claim}/{claim}"}, "{claim} twice"},
		"a relative pattern":                 {[]string{"--pattern", "old/*"}, "does not begin with /"},
		"an unknown provisioner":             {[]string{"--from", "nfs"}, "want one of efs-provisioner"},
		"a base without one":                 {[]string{"a=/old/a", "--base", "/x"}, "--base: it is for --from"},
		"access points that are not there":   {[]string{"a=/old/a", "--access-points", "/nonexistent"}, "--access-points /nonexistent: open /nonexistent"},
		"a list that is not there":           {[]string{"--list", "/nonexistent"}, "--list: open /nonexistent"},
		"a directory that is not there":      {[]string{"a=/old/none"}, "there is no such directory"},
		"a file":                             {[]string{"a=/old/file"}, "not a directory"},
		"the ledger":                         {[]string{"a=/.efs-stunnel/owners"}, "where no volume may be"},
		"the root":                           {[]string{"a=/"}, "is the whole file system"},
		"one with an owner":                  {[]string{"x=/team/taken"}, "it belongs to volume pvc-"},
		"one above an owner's":               {[]string{"x=/team"}, "/team/taken, which is inside, belongs to"},
		"one below an owner's":               {[]string{"x=/team/taken/below"}, "/team/taken, in which it is, belongs to"},
		"one twice":                          {[]string{"a=/old/a", "b=/old/a"}, "wanted for several claims"},
		"a claim twice":                      {[]string{"a=/old/a", "a=/old/b"}, "claim team/a is wanted for several directories"},
		"one inside the other":               {[]string{"a=/old", "b=/old/b"}, "it is inside /old, which is wanted, too"},
		"a namespace that is not there":      {[]string{"none/a=/old/a"}, "namespace none does not exist"},
		"a claim that exists":                {[]string{"there=/old/a"}, "claim team/there exists, without a volume"},
		"a claim's name that is none":        {[]string{"A_B=/old/a"}, "is no name of a claim"},
		"a class that is not there":          {[]string{"a=/old/a", "--class", "none"}, `there is no storage class "none"`},
		"a class of another provisioner":     {[]string{"a=/old/a", "--class", "other"}, `is of provisioner "example.com/other"`},
		"an access mode of no shared volume": {[]string{"a=/old/a", "--access-mode", "ReadWriteOncePod"}, "write ReadWriteMany"},
		"a size of nothing":                  {[]string{"a=/old/a", "--size", "0"}, "the size is not above 0"},
		"names to believe in a pattern":      {[]string{"--pattern", "/old/*", "--trust-path-names"}, "--trust-path-names: it is for --from"},
		"names to believe of no namespace":   {[]string{"--from", "efs-provisioner", "--trust-path-names"}, "say with -n whose they are"},
		"a name without a bound volume":      {[]string{"--from", "efs-provisioner", "--base", "/twice"}, "no bound volume of the cluster has it"},
		"a name of several namespaces":       {[]string{"--from", "nfs-subdir-external-provisioner", "--base", "/twice", "--trust-path-names"}, "several claims, as team/b-c and team-b/c"},
		"a name of no namespace":             {[]string{"--from", "nfs-subdir-external-provisioner", "--base", "/none", "--trust-path-names"}, "namespace nobody does not exist"},
		"a released volume's directory":      {[]string{"--from", "efs-provisioner", "--base", "/released"}, "only volume released, which is not bound, says that it is claim team/was's"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			const end = "-pvc-11111111-2222-4333-8444-555555555555"
			c := newImportCluster(t, "/old/a", "/old/b", "/team", "/twice/team-b-c"+end, "/none/nobody-b"+end, "/released/was"+end)
			c.own(claimOf(goneCluster, "team", "taken", "1"), 0)
			if err := os.Mkdir(filepath.Join(c.folder, "team", "taken", "below"), 0o755); err != nil {
				t.Fatal(err)
			}
			c.add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-b"}},
				&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "released"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased}, Spec: corev1.PersistentVolumeSpec{
					ClaimRef:               &corev1.ObjectReference{Namespace: "team", Name: "was", UID: "gone"},
					PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: testFS + ".efs.us-east-1.amazonaws.com", Path: "/released/was" + end}},
				}},
				&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "there"}})
			if err := os.WriteFile(filepath.Join(c.folder, "old", "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			got := invoke(t, c.Clientset, append([]string{"import", "--apply", "--timeout=1s"}, tt.args...)...)
			if text := got.stdout + got.stderr; got.code != exitUnknown || !strings.Contains(text, tt.text) {
				t.Errorf("%+v", got)
			}
			if c.writes() != 0 {
				t.Errorf("%d writes", c.writes())
			}
			c.expectNoJobs()
		})
	}
}

func TestHostileDirectoriesAreNotImported(t *testing.T) {
	c := newImportCluster(t, "/old/good", "/old/\x1b[2J\x9b31m\r\nNAME\tx", "/old/\u202ex", "/old/\xff\xfe", "/old/"+strings.Repeat("y", 255))
	if err := os.Symlink("/etc", filepath.Join(c.folder, "old", "link")); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"", "json", "yaml"} {
		got := invoke(t, c.Clientset, "import", "--pattern", "/old/*", "-o", format)
		if text := got.stdout + got.stderr; strings.ContainsAny(text, "\x1b\u009b\r\t\x00\u202e") || !utf8.ValidString(text) || got.code != exitUnknown {
			t.Errorf("%s: %+v", format, got)
		}
		if !strings.Contains(got.stdout, "/old/good") || strings.Contains(got.stdout, "yyy") || strings.Contains(got.stdout, "/old/link") {
			t.Errorf("%s: %s", format, got.stdout)
		}
	}
	c.expectNoJobs()
}

// TestAnImportWantsOneFileSystem: a path is one of a file system.
func TestAnImportWantsOneFileSystem(t *testing.T) {
	c := newImportCluster(t, "/old/a")
	table, err := c.CoreV1().ConfigMaps(wellknown.Namespace).Get(t.Context(), wellknown.TargetsConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	table.Data[wellknown.TargetsKey] = string(ports.Encode(ports.Table{Targets: map[string]ports.Target{testFS: {Port: 20490}, "fs-2": {Port: 20491}}}))
	if _, err := c.CoreV1().ConfigMaps(wellknown.Namespace).Update(t.Context(), table, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := invoke(t, c.Clientset, "import", "a=/old/a"); got.code != exitUnknown || !strings.Contains(got.stderr, "want one of fs-0123456789abcdef0, fs-2") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, c.Clientset, "import", "a=/old/a", "--file-system", testFS); got.code != exitHealthy {
		t.Errorf("%+v", got)
	}
}
