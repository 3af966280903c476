package volumes_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// wantSafePath says in other words than the code what a path must be.
func wantSafePath(t testing.TB, p, base string) {
	t.Helper()
	below, ok := strings.CutPrefix(p, strings.TrimSuffix(base, "/")+"/")
	switch {
	case !ok || below == "" || path.Clean(p) != p:
		t.Fatalf("%q is not strictly below %q", p, base)
	case p == "/.efs-stunnel" || strings.HasPrefix(p, "/.efs-stunnel/"):
		t.Fatalf("%q is the provisioner's own", p)
	case !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl) || strings.Contains(p, `\`):
		t.Fatalf("%q has characters that no path may have", p)
	case len(p) > 1024 || strings.Contains(p, "/@"):
		t.Fatalf("%q is too long or an owner's", p)
	}
	for component := range strings.SplitSeq(p, "/") {
		if len(component) > 255 {
			t.Fatalf("%q has a component of %d bytes", p, len(component))
		}
	}
}

// wantRefusedOr takes an error for a fit refusal, and says whether there was none.
func wantRefusedOr(t testing.TB, err error) (fine bool) {
	t.Helper()
	if err == nil {
		return true
	}
	var refusal volumes.Refusal
	text := err.Error()
	if !errors.As(err, &refusal) || text == "" || len(text) > 1024 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Fatalf("refused with %q", text)
	}
	return false
}

// provision goes the whole way from objects to the volume, and checks what comes of it.
func provision(t testing.TB, class *storagev1.StorageClass, claim *corev1.PersistentVolumeClaim) (volumePath string, ok bool) {
	t.Helper()
	parsed, err := volumes.ParseClass(class)
	if !wantRefusedOr(t, err) {
		return "", false
	}
	wanted, err := volumes.ParseClaim(claim, parsed)
	if !wantRefusedOr(t, err) {
		return "", false
	}
	wantSafePath(t, wanted.Path, parsed.BasePath)
	operation, err := volumes.Begin(wanted, parsed, volumes.Choice{FileSystemID: "fs-1"}, cluster)
	if !wantRefusedOr(t, err) {
		return "", false
	}
	data, err := operations.Encode([]operations.Operation{operation})
	if err != nil {
		t.Fatalf("the operation cannot be encoded: %v", err)
	}
	decoded, err := operations.Decode(data)
	if err != nil {
		t.Fatalf("the operation cannot be decoded: %v", err)
	}
	volume, err := volumes.FromOperation(decoded[0], 20490, 0, provisioner)
	if err != nil {
		t.Fatalf("the directory would be there, and no volume: %v", err)
	}
	wantFitVolume(t, volume, wanted.Path)
	return wanted.Path, true
}

// wantFitVolume wants a volume that the cluster accepts and that reads back as ours.
func wantFitVolume(t testing.TB, object *corev1.PersistentVolume, path string) {
	t.Helper()
	for key, value := range object.Labels {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			t.Fatalf("no object can have the label %q: %q", key, value)
		}
	}
	if volume := volumes.Read(object, provisioner); volume.Kind != volumes.Provisioned || volume.Problem != "" || volume.Path != path || volume.Port != 20490 {
		t.Fatalf("what was made at %q reads back as %+v", path, volume)
	}
	ports := slices.DeleteFunc(slices.Clone(object.Spec.MountOptions), func(o string) bool { return !strings.HasPrefix(o, "port=") })
	if len(ports) != 1 || strings.Contains(strings.Join(object.Spec.MountOptions, "|"), ",") {
		t.Fatalf("mount options are %q", object.Spec.MountOptions)
	}
}

// hostileText strings together what has broken others.
func hostileText(random *rand.Rand) string {
	pieces := []string{
		"..", ".", "/", "//", "../", "/..", `\`, `..\`, "\x00", "\n", "\r\n", "\x7f", "\u0085", "\u202e", "\xff\xfe", "@", "@pvc-1", "~2",
		".efs-stunnel", "/.efs-stunnel/owners", ".leaving", "${.PVC.name}", "${volume_name}", "${", "}", "$", "$(id)", "`id`", "%2e%2e%2f", "%00",
		" ", "", ",", "port=2049", "=", ":", "team", "data", "a", "é", "．．", "∕", strings.Repeat("x", 255), strings.Repeat("ä", 128), strings.Repeat("y/", 300),
		"-", "_", "0", "'", `"`, "{", "<", "&", "kubernetes.io/x", "127.0.0.1", "fs-1", "auto", "true", "-1", "0777", "\t", "con", "*", "?", "~", "#",
	}
	var text strings.Builder
	for range 1 + random.IntN(4) {
		text.WriteString(pieces[random.IntN(len(pieces))])
	}
	return text.String()
}

func TestHostileClaimsStayBelowTheBasePath(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	patterns := []string{
		"", "${.PVC.name}", "${.PVC.namespace}/${.PVC.name}", "${.PVC.labels.a}", "x/${.PVC.labels.a}${.PVC.labels.b}/y",
		"${.PVC.annotations.a}", "${.PVC.namespace}/${.PVC.annotations.a}", "${.PVC.annotations.a}${.PVC.annotations.b}", "${.PV.name}/${.PVC.uid}",
	}
	bases := []string{"", "/", "/k8s", "/k8s/prod/"}
	accepted := 0
	for range 20_000 {
		parameters := map[string]string{}
		if pattern := patterns[random.IntN(len(patterns))]; pattern != "" {
			parameters["path_pattern"] = pattern
		}
		if base := bases[random.IntN(len(bases))]; base != "" {
			parameters["base_path"] = base
		}
		if _, ok := provision(t, newClass(parameters), hostileClaim(random)); ok {
			accepted++
		}
	}
	if accepted < 500 {
		t.Errorf("only %d claims were accepted, so the test says little", accepted)
	}
}

// hostileClaim leaves some fields as they are, because one hostile field hides another.
func hostileClaim(random *rand.Rand) *corev1.PersistentVolumeClaim {
	text := func(fine string) string {
		if random.IntN(2) == 0 {
			return fine
		}
		return hostileText(random)
	}
	claim := newClaim()
	claim.Namespace, claim.Name = text("team"), text("data")
	claim.Labels = map[string]string{"a": text("x"), "b": text("y")}
	claim.Annotations["a"], claim.Annotations["b"] = text("p/q"), text("r")
	if random.IntN(2) == 0 {
		claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"volume_name": text("v_1")}}
	}
	if random.IntN(4) == 0 {
		claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{text("tier"): text("gold")}}
	}
	claim.UID = types.UID(fmt.Sprintf("%s%012x", claimUID[:24], random.IntN(1<<40)))
	return claim
}

func TestHostileClassesMakeNothingElse(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	keys := []string{"base_path", "path_pattern", "directory_perms", "file_system_ids", "uid", "gidAllocate", "keep_deleted", "adopt_existing"}
	accepted := 0
	for range 20_000 {
		class := newClass(map[string]string{keys[random.IntN(len(keys))]: hostileText(random)})
		if random.IntN(3) == 0 {
			class.Parameters = map[string]string{"base_path": "/" + hostileText(random), "path_pattern": hostileText(random)}
		}
		if random.IntN(3) == 0 {
			class.MountOptions = []string{hostileText(random), hostileText(random)}
		}
		if _, ok := provision(t, class, newClaim()); ok {
			accepted++
		}
	}
	if accepted < 500 {
		t.Errorf("only %d classes were accepted, so the test says little", accepted)
	}
}

// Where only the pattern says how deep a path is, no claim gets a directory in another's.
func TestClaimsOfAClassAreNeverNested(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, pattern := range []string{"${.PVC.namespace}/${volume_name}", "${.PVC.name}", "a/${.PVC.labels.a}-${.PVC.labels.b}/${.PVC.name}", "${.PVC.namespace}.${.PVC.name}/x"} {
		owners := map[string]string{}
		for range 3000 {
			claim := hostileClaim(random)
			if p, ok := provision(t, newClass(map[string]string{"path_pattern": pattern}), claim); ok {
				owners[p] = fmt.Sprintf("%q/%q", claim.Namespace, claim.Name)
			}
		}
		for p, owner := range owners {
			for above := path.Dir(p); above != "/"; above = path.Dir(above) {
				if other, ok := owners[above]; ok {
					t.Fatalf("with %s, %s of %s is in %s of %s", pattern, p, owner, above, other)
				}
			}
		}
		if len(owners) < 50 {
			t.Errorf("with %s, only %d paths came of it", pattern, len(owners))
		}
	}
}

// Two claims of one name, one after the other, and two namespaces never share by themselves.
func TestGeneratedNamesAreTheClaimsOwn(t *testing.T) {
	seen := map[string]bool{}
	class := parseClass(t, newClass(nil))
	for _, namespace := range []string{"a", "a-b"} {
		for _, name := range []string{"c", "b-c", strings.Repeat("n", 253), strings.Repeat("n", 252)} {
			for uid := range 3 {
				claim := newClaim(func(c *corev1.PersistentVolumeClaim) {
					c.Namespace, c.Name, c.UID = namespace, name, types.UID(fmt.Sprintf("%s-%d%d", claimUID[:34], uid, len(seen)%10))
				})
				p := parseClaim(t, claim, class).Path
				if seen[p] {
					t.Errorf("two claims have %s", p)
				}
				seen[p] = true
			}
		}
	}
}
