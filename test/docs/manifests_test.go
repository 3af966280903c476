package docs

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// TestManifestsAreAccepted: by the code that reads such objects in a cluster.
func TestManifestsAreAccepted(t *testing.T) {
	kinds := map[string]int{}
	for _, p := range pages(t) {
		r := reader{classes: shippedClass(t)}
		for _, text := range p.manifests() {
			kind, err := r.accept([]byte(text))
			if err != nil {
				t.Errorf("%s: %v\n%s", p.path, err, text)
			}
			kinds[kind]++
		}
	}
	for _, kind := range []string{"StorageClass", "PersistentVolumeClaim", "ConfigMap", "table"} {
		if kinds[kind] == 0 {
			t.Errorf("no page has a %s", kind)
		}
	}
}

// TestExamplesAreAccepted: by the code that reads such objects in a cluster. The page of examples names each file, and
// says which of them one command applies.
func TestExamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "examples/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	applied := readPage(t, "examples/kustomization.yaml").text
	want := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "kustomization.yaml" {
			continue
		}
		want[name] = "no"
		if strings.Contains(applied, "\n- "+name+"\n") {
			want[name] = "yes"
		}
		r := reader{classes: shippedClass(t)}
		for text := range strings.SplitSeq(readPage(t, "examples/"+name).text, "\n---\n") {
			if _, err := r.accept([]byte(text)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	got := map[string]string{}
	for _, row := range rows(readPage(t, "examples/README.md").text) {
		got[codes(row[0])[0]] = row[2]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("examples mismatch (-folder +page):\n%s", diff)
	}
}

// manifests returns the documents of all blocks of YAML.
func (p page) manifests() []string {
	var all []string
	_, blocks := p.split()
	for _, b := range blocks {
		if b.language == "yaml" {
			all = append(all, regexp.MustCompile(`(?m)^---\n`).Split(b.text, -1)...)
		}
	}
	return all
}

// reader reads the manifests of one page in their order, as users apply them.
type reader struct{ classes map[string]volumes.Class }

// shippedClass returns the class of the manifests.
func shippedClass(t *testing.T) map[string]volumes.Class {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/kustomize/base/storageclass.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r := reader{classes: map[string]volumes.Class{}}
	if err := r.acceptClass(text); err != nil {
		t.Fatal(err)
	}
	return r.classes
}

func (r reader) accept(text []byte) (kind string, err error) {
	var object metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(text, &object); err != nil {
		return "", err
	}
	switch {
	case object.Kind == "StorageClass":
		return object.Kind, r.acceptClass(text)
	case object.Kind == "PersistentVolumeClaim":
		return object.Kind, r.acceptClaim(text)
	case object.Kind == "ConfigMap":
		return object.Kind, acceptConfigMap(text)
	case strings.HasPrefix(string(text), "efs_stunnel_targets:"):
		_, err := ports.Decode(text)
		return "table", err
	}
	return object.Kind, nil
}

func (r reader) acceptClass(text []byte) error {
	var object storagev1.StorageClass
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		return err
	}
	if object.Provisioner != wellknown.DefaultProvisioner {
		return errors.New("it is another provisioner's")
	}
	class, err := volumes.ParseClass(&object)
	r.classes[object.Name] = class
	return err
}

func (r reader) acceptClaim(text []byte) error {
	var claim corev1.PersistentVolumeClaim
	if err := yaml.UnmarshalStrict(text, &claim); err != nil {
		return err
	}
	class, ok := r.classes[volumes.ClassName(&claim)]
	if !ok {
		return errors.New("its class is neither the shipped one nor on the page")
	}
	claim.Namespace, claim.UID = "default", "01234567-89ab-cdef-0123-456789abcdef"
	_, err := volumes.ParseClaim(&claim, class)
	return err
}

func acceptConfigMap(text []byte) error {
	var object corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		return err
	}
	table, ok := object.Data[wellknown.TargetsKey]
	if !ok {
		return nil
	}
	_, err := ports.DecodePinned([]byte(table))
	return err
}

// TestForeignParametersHaveTheirOwnRefusal: a user who forgets to translate one reads it on the claim.
func TestForeignParametersHaveTheirOwnRefusal(t *testing.T) {
	found := 0
	for page, heading := range map[string]string{
		"docs/tasks/migrate-from-efs-provisioner.md": "## Parameters of efs-provisioner",
		"docs/tasks/migrate-from-the-csi-driver.md":  "## Parameters of the EFS CSI driver",
	} {
		for _, row := range rows(readPage(t, page).section(t, heading)) {
			old := codes(row[0])
			if len(old) == 0 || row[1] == "the same" {
				continue
			}
			found++
			_, err := volumes.ParseClass(&storagev1.StorageClass{Parameters: map[string]string{old[0]: "1"}})
			if err == nil || strings.Contains(err.Error(), "allowed are ") {
				t.Errorf("the page translates %s, the program does not: %v", old[0], err)
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d parameters", found)
	}
}

const permissions = "docs/tasks/aws-permissions.md"

// TestPolicyAllowsTheCalledActions: and no others.
func TestPolicyAllowsTheCalledActions(t *testing.T) {
	sources, err := filepath.Glob(filepath.Join(root, "pkg/efs/awsefs/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var called []string
	for _, name := range sources {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:observed|called)\(ctx, c, "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
			called = append(called, "elasticfilesystem:"+m[1])
		}
	}
	if slices.Contains(called, "elasticfilesystem:CreateAccessPoint") {
		called = append(called, "elasticfilesystem:TagResource") // AWS asks for it where the request has tags
	}
	slices.Sort(called)
	page := slices.Sorted(slices.Values(slices.Concat(allowed(t)...)))
	if diff := cmp.Diff(slices.Compact(called), page); diff != "" {
		t.Errorf("actions mismatch (-called +page):\n%s", diff)
	}
}

// allowed returns the actions of each policy of the page: the first is that of every installation.
func allowed(t *testing.T) (policies [][]string) {
	t.Helper()
	_, blocks := readPage(t, permissions).split()
	for _, b := range blocks {
		if b.language != "json" {
			continue
		}
		var policy struct {
			Statement []struct{ Action []string }
		}
		if err := json.Unmarshal([]byte(b.text), &policy); err != nil {
			t.Fatal(err)
		}
		var actions []string
		for _, statement := range policy.Statement {
			actions = append(actions, statement.Action...)
		}
		slices.Sort(actions)
		policies = append(policies, actions)
	}
	if len(policies) == 0 {
		t.Fatal(permissions + " has no policy")
	}
	return policies
}
