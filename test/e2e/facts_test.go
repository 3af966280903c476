//go:build acceptance

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/plugin/collect"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/test/e2e/report"
)

// facts returns the facts that a reader of the report needs first.
func (c *cluster) facts(status inspect.Status) []report.Fact {
	c.Helper()
	var version struct{ ServerVersion struct{ GitVersion string } }
	if err := json.Unmarshal([]byte(c.kubectl("version", "-o", "json")), &version); err != nil {
		c.Fatal(err)
	}
	facts := []report.Fact{{Name: "Kubernetes", Value: version.ServerVersion.GitVersion}}
	nodes := map[string]int{}
	const node = `{.osImage}, kernel {.kernelVersion}, {.architecture}, {.containerRuntimeVersion}, kubelet {.kubeletVersion}`
	for line := range strings.Lines(c.kubectl("get", "nodes", "-o", "jsonpath={range .items[*].status.nodeInfo}"+node+`{"\n"}{end}`)) {
		nodes[strings.TrimSpace(line)]++
	}
	for _, kind := range slices.Sorted(maps.Keys(nodes)) {
		facts = append(facts, report.Fact{Name: fmt.Sprintf("nodes: %d", nodes[kind]), Value: kind})
	}
	for _, p := range status.Programs {
		facts = append(facts, report.Fact{Name: p.Name, Value: fmt.Sprintf("%s, %d of %d ready when the run began", p.Image, p.Ready, p.Desired)})
	}
	facts = append(facts, report.Fact{Name: "status when the run began", Value: string(status.Level)})
	for _, problem := range status.Problems {
		facts = append(facts, report.Fact{Name: string(problem.Cause), Value: problem.Object + ": " + problem.Message})
	}
	return append(facts, report.Fact{Name: "image of pods", Value: c.image}, report.Fact{Name: "wait limit", Value: limit.String()})
}

// classYAML has what of a class decides what its claims get.
func (c *cluster) classYAML(class storagev1.StorageClass) string {
	c.Helper()
	text, err := yaml.Marshal(map[string]any{
		"class": class.Name, "parameters": class.Parameters, "mountOptions": class.MountOptions,
		"reclaimPolicy": class.ReclaimPolicy, "volumeBindingMode": class.VolumeBindingMode,
	})
	if err != nil {
		c.Fatal(err)
	}
	return string(text)
}

// write writes the report without credentials, and says where it is.
func (a *acceptance) write() {
	a.Helper()
	if a.Failed() && len(a.found.Failures) > 0 { // also while it cleaned up
		a.add(a.cluster, "beside the scenarios")
	}
	a.report.Took = time.Since(a.report.Began)
	file := cmp.Or(os.Getenv("REPORT"), "bin/acceptance.md")
	if !filepath.IsAbs(file) {
		file = filepath.Join(a.root, file)
	}
	if err := os.WriteFile(file, []byte(collect.Redacted(a.report.Markdown())), 0o600); err != nil {
		a.Fatal(err)
	}
	a.Logf("the report is %s", file)
}
