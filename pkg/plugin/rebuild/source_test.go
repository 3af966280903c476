package rebuild_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
)

func TestPairsAndLists(t *testing.T) {
	want := []rebuild.Wanted{{Namespace: "team", Claim: "a", Path: "/old/a"}, {Namespace: "mine", Claim: "b", Path: "/old/b=c"}}
	got, err := rebuild.ParseList("# old\r\n\n team/a=/old/a/ \nb=/old/b=c", "mine")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "a", "a=", "=/x", "team/=/x", "/a=/x", "team/a=x"} {
		if _, err := rebuild.ParsePair(text, "mine"); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if _, err := rebuild.ParseList("a=/a\n\nb", "mine"); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Error(err)
	}
}

func TestTemplatesNameClaims(t *testing.T) {
	tests := map[string]struct {
		template, path string
		want           string // NAMESPACE/CLAIM, or a part of the doubt
	}{
		"a folder for each namespace":        {"/home/{namespace}/{claim}", "/home/team/a", "team/a"},
		"a namespace that is not there":      {"/home/{namespace}/{claim}", "/home/none/a", "none/a"},
		"the directory's name":               {"/{namespace}/*", "/team/data.0", "team/data.0"},
		"a part of a name":                   {"/{namespace}-{claim}-pvc-*", "/team-b-pvc-1", "team/b"},
		"a part that ends in two places":     {"/{namespace}-{claim}-pvc-*", "/team-x-pvc-y-pvc-1", "several claims, as team/x and team-x-pvc/y"},
		"of two namespaces":                  {"/{namespace}-{claim}-pvc-*", "/team-b-x-pvc-1", "several claims, as team/b-x and team-b/x"},
		"of three namespaces":                {"/{claim}-{namespace}", "/a-b-c-d", "several claims, as b-c-d/a and d/a-b-c"},
		"of two namespaces beside wildcards": {"/*-{namespace}-*", "/a-b-c-b-d", "several claims"},
		"wildcards where no name is":         {"/*-*/{namespace}/{claim}", "/a-b-c/team/a", "team/a"},
		"without a namespace":                {"/{claim}-pvc-*", "/a-pvc-1", "default/a"},
		"single characters":                  {"/{namespace}/{claim}-?", "/team/a-1", "team/a"},
		"characters of regular expressions":  {"/{namespace}/x.(y)+/{claim}", "/team/x.(y)+/a", "team/a"},
		"letters of any language":            {"/données/{namespace}/{claim}", "/données/team/a", "team/a"},
		"a name that no claim has":           {"/{namespace}/{claim}", "/team/A B", "fits no claim"},
		"an escape sequence":                 {"/{namespace}/{claim}", "/team/a\x1b[2J", "fits no claim"},
		"a path that is another's, too long": {"/{namespace}/{claim}", "/team/a/b", "fits no claim"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			template, err := rebuild.ParseTemplate(tt.template)
			if err != nil {
				t.Fatal(err)
			}
			w := template.NameAll([]requests.Directory{{Path: tt.path}}, nil, "default")[0]
			if got := w.Namespace + "/" + w.Claim; w.Doubt == "" || got != tt.want && (got != "/" || !strings.Contains(w.Doubt, tt.want)) {
				t.Errorf("%+v, want %s", w, tt.want)
			}
		})
	}
	for _, text := range []string{"", "/", "home/*", "/{claim}-{claim}", "/[a-z]", `/a\b`, "/{pod}", "/a//b", "/../b", "/\xff/*"} {
		if _, err := rebuild.ParseTemplate(text); err == nil {
			t.Errorf("the pattern %q is accepted", text)
		}
	}
}

func TestClaimsOfOtherProvisioners(t *testing.T) {
	volume := func(source corev1.PersistentVolumeSource, claim string) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
		v.Annotations, v.Status.Phase = map[string]string{wellknown.AnnotationGID: "40001"}, corev1.VolumeBound
		if claim != "" {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "team", Name: claim}
		}
		return v
	}
	nfs := func(server, path string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: server, Path: path}}
	}
	csi := func(handle string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "efs.csi.aws.com", VolumeHandle: handle}}
	}
	points := []rebuild.AccessPoint{{ID: "fsap-1", Path: "/points/1"}, {ID: "fsap-2", Path: "/points/2"}}
	tests := map[string]struct {
		from   rebuild.Provisioner
		source corev1.PersistentVolumeSource
		claim  string
		path   string // "" is none
		point  string
	}{
		"an NFS volume":                {rebuild.EFSProvisioner, nfs(fs1+".efs.us-east-1.amazonaws.com", "/p/a/"), "a", "/p/a", ""},
		"of another file system":       {rebuild.EFSProvisioner, nfs(fs1+"1.efs.us-east-1.amazonaws.com", "/p/a"), "a", "", ""},
		"of another provisioner":       {rebuild.AWSDriver, nfs(fs1+".efs.us-east-1.amazonaws.com", "/p/a"), "a", "", ""},
		"one without a claim":          {rebuild.NFSSubdir, nfs(fs1+".efs.us-east-1.amazonaws.com", "/p/a"), "", "", ""},
		"an access point":              {rebuild.AWSDriver, csi(fs1 + "::fsap-1"), "a", "/points/1", "fsap-1"},
		"with its kind":                {rebuild.AWSDriver, csi("efs:" + fs1 + "::fsap-2"), "a", "/points/2", "fsap-2"},
		"one that is not in the list":  {rebuild.AWSDriver, csi(fs1 + "::fsap-3"), "a", "", ""},
		"a path":                       {rebuild.AWSDriver, csi(fs1 + ":/static/a"), "a", "/static/a", ""},
		"a path below an access point": {rebuild.AWSDriver, csi(fs1 + ":/below:fsap-1"), "a", "/points/1/below", ""},
		"the whole file system":        {rebuild.AWSDriver, csi(fs1), "a", "", ""},
		"another file system's":        {rebuild.AWSDriver, csi(fs2 + "::fsap-1"), "a", "", ""},
		"a file store that is not EFS": {rebuild.AWSDriver, csi("s3files:" + fs1 + "::fsap-1"), "a", "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			known := tt.from.KnownClaims(map[string]*corev1.PersistentVolume{"v": volume(tt.source, tt.claim)}, fs1, points)
			if tt.path == "" && len(known) == 0 {
				return
			}
			if want := (rebuild.Wanted{Namespace: "team", Claim: "a", Path: tt.path, AccessPoint: tt.point, GID: 40001}); len(known) != 1 || known[tt.path] != want {
				t.Errorf("%+v, want %+v", known, want)
			}
		})
	}
	both := map[string]*corev1.PersistentVolume{"v": volume(csi(fs1+"::fsap-1"), "a"), "w": volume(csi(fs1+"::fsap-1"), "b")}
	wanted := rebuild.WantedOf(points, rebuild.AWSDriver.KnownClaims(both, fs1, points))
	if len(wanted) != 2 || !strings.Contains(wanted[0].Doubt, "several volumes") || !strings.Contains(wanted[1].Doubt, "no volume of the cluster has access point fsap-2") {
		t.Errorf("%+v", wanted)
	}
}

// TestOnlyABoundVolumeVouchesForItsClaim also beside others that have the same path.
func TestOnlyABoundVolumeVouchesForItsClaim(t *testing.T) {
	volume := func(name, claim string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				ClaimRef:               &corev1.ObjectReference{Namespace: "team", Name: claim, UID: "gone"},
				PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: fs1 + ".efs.us-east-1.amazonaws.com", Path: "/p/a"}},
			},
			Status: corev1.PersistentVolumeStatus{Phase: phase},
		}
	}
	bound, released := volume("v1", "a", corev1.VolumeBound), volume("v2", "b", corev1.VolumeReleased)
	tests := map[string]struct {
		volumes      []*corev1.PersistentVolume
		claim, doubt string
	}{
		"bound":                 {[]*corev1.PersistentVolume{bound}, "a", ""},
		"bound, and released":   {[]*corev1.PersistentVolume{bound, released, volume("v3", "c", corev1.VolumeReleased)}, "a", ""},
		"bound twice":           {[]*corev1.PersistentVolume{bound, volume("v3", "c", corev1.VolumeBound), released}, "", "several volumes"},
		"released":              {[]*corev1.PersistentVolume{released}, "b", "only volume v2, which is not bound, says that it is claim team/b's"},
		"released for two":      {[]*corev1.PersistentVolume{released, volume("v3", "c", corev1.VolumeReleased)}, "", "several volumes"},
		"reserved, and unbound": {[]*corev1.PersistentVolume{volume("v3", "c", corev1.VolumeAvailable)}, "c", "which is not bound"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			all := map[string]*corev1.PersistentVolume{}
			for _, v := range tt.volumes {
				all[v.Name] = v
			}
			w := rebuild.EFSProvisioner.KnownClaims(all, fs1, nil)["/p/a"]
			if w.Claim != tt.claim || !strings.Contains(w.Doubt, tt.doubt) || tt.doubt == "" && w.Doubt != "" {
				t.Errorf("%+v, want %s %q", w, tt.claim, tt.doubt)
			}
		})
	}
}

// TestDirectoriesOfDoubtfulClaimsAreAskedAbout unless names are believed, and fit one claim.
func TestDirectoriesOfDoubtfulClaimsAreAskedAbout(t *testing.T) {
	const end = "-pvc-00000000-0000-4000-8000-000000000001"
	tests := map[string]struct {
		from       rebuild.Provisioner
		path, note string
		trusted    rebuild.State // with the names believed
	}{
		"of one namespace":                  {rebuild.NFSSubdir, "/exports/team-payroll" + end, "claim team/payroll's: say whose it is by NAMESPACE/CLAIM=/exports/team-payroll" + end + ", or believe", rebuild.Planned},
		"of a namespace that is not there":  {rebuild.NFSSubdir, "/exports/hr-payroll" + end, "only its name says that it is claim hr/payroll's", rebuild.Refused},
		"of another one that is not there":  {rebuild.NFSSubdir, "/exports/team-a-payroll" + end, "as team/a-payroll and team-a/payroll", rebuild.Whose},
		"archived":                          {rebuild.NFSSubdir, "/exports/archived-team-payroll" + end, "fits several claims", rebuild.Whose},
		"of any namespace":                  {rebuild.EFSProvisioner, "/exports/payroll" + end, "only its name says", rebuild.Planned},
		"of no claim":                       {rebuild.EFSProvisioner, "/exports/lost+found", "fits no claim", rebuild.Whose},
		"of any namespace, with two claims": {rebuild.EFSProvisioner, "/exports/payroll" + end + end, "fits several claims", rebuild.Whose},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			template, err := rebuild.ParseTemplate(tt.from.Template("/exports"))
			if err != nil {
				t.Fatal(err)
			}
			plan := rebuild.Import{Cluster: newCluster(nil), Choice: choice(), FileSystem: fs1}
			plan.Class = "efs"
			found := []requests.Directory{{Path: tt.path}}
			wanted := template.NameAll(found, nil, "team")
			item := plan.Plan(wanted, found, nil)[0]
			if item.State != rebuild.Whose || does(item) != "" || item.Claim != "" || item.Volume != "" || !strings.Contains(item.Note, tt.note) {
				t.Errorf("%+v", item)
			}
			plan.TrustNames = true
			if item = plan.Plan(wanted, found, nil)[0]; item.State != tt.trusted || (does(item) == "") != (tt.trusted != rebuild.Planned) {
				t.Errorf("with names believed: %+v", item)
			}
			taken := requests.Owned{Path: tt.path, Volume: "pvc-x", Cluster: own, Namespace: "team", Claim: "payroll"}
			plan.TrustNames = false
			if item = plan.Plan(wanted, found, []requests.Owned{taken})[0]; item.State != rebuild.Refused || !strings.Contains(item.Note, "belongs to volume pvc-x") {
				t.Errorf("with an owner: %+v", item)
			}
		})
	}
}

func TestAccessPointsAreThoseOfTheFileSystem(t *testing.T) {
	const text = `{"AccessPoints": [{"AccessPointId": "fsap-1", "FileSystemId": "` + fs1 + `", "ClientToken": "t", "RootDirectory": {"Path": "/a"}}, {"FileSystemId": "` + fs2 + `"}]}`
	points, err := rebuild.ParseAccessPoints([]byte(text), []string{fs1})
	if want := []rebuild.AccessPoint{{ID: "fsap-1", FileSystem: fs1, Path: "/a", Token: "t"}}; err != nil || !reflect.DeepEqual(points, want) {
		t.Errorf("%+v, %v", points, err)
	}
	for _, text := range []string{"", "{}", "[]", "An error occurred"} {
		if _, err := rebuild.ParseAccessPoints([]byte(text), []string{fs1}); err == nil || !strings.Contains(err.Error(), "describe-access-points") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := rebuild.ParseAccessPoints([]byte(strings.ReplaceAll(text, "fsap-1", "../x")), []string{fs1}); err == nil || !strings.Contains(err.Error(), "no access point id") {
		t.Errorf("an id that is none: %v", err)
	}
}

// TestAnImportIsTheSameInEachRun and another one for another claim.
func TestAnImportIsTheSameInEachRun(t *testing.T) {
	i := rebuild.Import{Cluster: newCluster(nil), Choice: choice(), FileSystem: fs1}
	i.Class = "efs"
	found := []requests.Directory{{Path: "/old/a", GID: 2005, Setgid: true}, {Path: "/old/b", GID: 5, Setgid: true}}
	plan := func(claim string) rebuild.Item {
		return i.Plan([]rebuild.Wanted{{Namespace: "team", Claim: claim, Path: "/old/a"}}, found, nil)[0]
	}
	one, again, other := plan("a"), plan("a"), plan("b")
	if one.Volume != again.Volume || one.Volume == other.Volume || does(one) != "adopt volume claim" || one.Adoption.Made || one.Adoption.GID != 2005 {
		t.Errorf("%+v, %+v, %+v", one, again, other)
	}
	low := i.Plan([]rebuild.Wanted{{Namespace: "team", Claim: "b", Path: "/old/b"}}, found, nil)[0]
	if low.Adoption.GID != 0 {
		t.Errorf("a group of the system is given to pods: %+v", low.Adoption)
	}
	taken := requests.Owned{Path: "/old/a", Volume: one.Volume, Cluster: own, Namespace: "team", Claim: "a"}
	done := rebuild.Import{
		Cluster: newCluster([]corev1.PersistentVolume{*one.NewVolume}, *one.NewClaim), Choice: i.Choice, FileSystem: fs1,
	}
	wanted := []rebuild.Wanted{{Namespace: "team", Claim: "a", Path: "/old/a"}}
	for state, ledger := range map[rebuild.State][]requests.Owned{rebuild.Exists: {taken}, rebuild.Planned: nil} {
		if item := done.Plan(wanted, found, ledger)[0]; item.State != state || item.NewVolume != nil || item.NewClaim != nil {
			t.Errorf("with the ledger %v: %+v", ledger, item)
		}
	}
}

// TestRetainedDataIsForItsNamespace: mount Jobs decide about the class.
func TestRetainedDataIsForItsNamespace(t *testing.T) {
	i := rebuild.Import{Cluster: newCluster(nil), Choice: choice(), FileSystem: fs1}
	i.Class = "efs"
	mark := requests.Owned{Path: "/old/a", Volume: "pvc-x", Cluster: own, Namespace: "team", Claim: "old", Retained: true}
	for namespace, state := range map[string]rebuild.State{"team": rebuild.Planned, "team-b": rebuild.Refused} {
		wanted := []rebuild.Wanted{{Namespace: namespace, Claim: "a", Path: "/old/a"}}
		if item := i.Plan(wanted, []requests.Directory{{Path: "/old/a"}}, []requests.Owned{mark})[0]; item.State != state {
			t.Errorf("namespace %s: %+v", namespace, item)
		}
	}
	unreadable := requests.Owned{Path: "/old/a", Volume: "@damaged", Unreadable: true}
	wanted := []rebuild.Wanted{{Namespace: "team", Claim: "a", Path: "/old/a"}}
	if item := i.Plan(wanted, []requests.Directory{{Path: "/old/a"}}, []requests.Owned{unreadable})[0]; !strings.Contains(item.Note, "cannot be read") {
		t.Errorf("%+v", item)
	}
}

func TestRowsAreOfOneLineEach(t *testing.T) {
	items := []rebuild.Item{{Path: "/a"}, {Namespace: "team", Claim: "b", State: rebuild.Done, NewClaim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "b"}}}}
	if rows := rebuild.Rows(items); len(rows) != 3 || rows[1][2] != "-" || rows[2][2] != "team/b" || len(rows[2]) != len(rows[0]) {
		t.Errorf("%q", rows)
	}
}
