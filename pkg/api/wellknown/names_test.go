package wellknown_test

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Every constant is read from the source, so that a new one is checked without being listed
// here.
func TestNames(t *testing.T) {
	tests := map[string]struct {
		prefix string // of the constants' names
		check  func(value string) []string
	}{
		"annotation keys are qualified names": {"Annotation", validation.IsQualifiedName},
		"label keys are qualified names":      {"Label", validation.IsQualifiedName},
		"finalizers are qualified names":      {"Finalizer", validation.IsQualifiedName},
		"taint keys are qualified names":      {"Taint", validation.IsQualifiedName},
		"event reasons are in camel case":     {"Event", isReason},
	}
	all := stringConstants(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			firstOf := map[string]string{} // value -> the first constant that has it
			for constName, value := range all {
				if !strings.HasPrefix(constName, tt.prefix) {
					continue
				}
				if problems := tt.check(value); len(problems) > 0 {
					t.Errorf("%s = %q: %s", constName, value, strings.Join(problems, "; "))
				}
				if first, ok := firstOf[value]; ok {
					t.Errorf("%s and %s are both %q", first, constName, value)
				}
				firstOf[value] = constName
			}
			if len(firstOf) == 0 {
				t.Errorf("no constant starts with %s", tt.prefix)
			}
		})
	}
}

// The longest suffix of a created name is a file system id (fs- and 17 hex digits), "-" and
// the number of a Job, or a uid.
func TestCreatedNamesAreObjectNames(t *testing.T) {
	const fileSystem, uid = "fs-0123456789abcdef0", "5f6fdb2c-9e3a-4b9f-9d3c-0123456789ab"
	for _, name := range []string{
		wellknown.Namespace,
		wellknown.ManagerDeployment, wellknown.NodeDaemonSet, wellknown.StorageClass,
		wellknown.ManagerServiceAccount, wellknown.NodeServiceAccount, wellknown.WorkerServiceAccount,
		wellknown.ManagerLease, wellknown.TargetsConfigMap, wellknown.ViewConfigMap, wellknown.PinnedConfigMap,
		wellknown.RootStorageClass,
		wellknown.RootVolumePrefix + fileSystem,
		wellknown.VolumePrefix + uid,
		wellknown.QuestionPrefix + uid,
		wellknown.MountJobPrefix + fileSystem + "-00001",
		wellknown.SweepJobPrefix + fileSystem + "-00001",
		wellknown.SurveyJobPrefix + fileSystem + "-00001",
		wellknown.CloneJobPrefix + fileSystem + "-00001",
		wellknown.LedgerJobPrefix + fileSystem + "-bcdfg",
	} {
		// A Job's name becomes a label value on its pods, so the shorter limit holds for all.
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			t.Errorf("%q: %s", name, strings.Join(problems, "; "))
		}
	}
}

func TestProvisionerIsNotOfTheCluster(t *testing.T) {
	if problems := validation.IsQualifiedName(wellknown.DefaultProvisioner); len(problems) > 0 {
		t.Errorf("provisioner %q: %s", wellknown.DefaultProvisioner, strings.Join(problems, "; "))
	}
	domain, _, _ := strings.Cut(wellknown.DefaultProvisioner, "/")
	for _, reserved := range []string{wellknown.KubernetesDomain, wellknown.KubernetesShortDomain} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			t.Errorf("provisioner %q is below %s", wellknown.DefaultProvisioner, reserved)
		}
	}
}

func isReason(value string) []string {
	if regexp.MustCompile(`^([A-Z][a-z0-9]+)+$`).MatchString(value) {
		return nil
	}
	return []string{"not in camel case"}
}

// stringConstants returns this package's exported string constants by name.
func stringConstants(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	fset, files := token.NewFileSet(), []*ast.File{}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, entry.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	config := types.Config{Importer: importer.Default()}
	pkg, err := config.Check("wellknown", fset, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if ok && c.Exported() && c.Val().Kind() == constant.String {
			values[name] = constant.StringVal(c.Val())
		}
	}
	return values
}
