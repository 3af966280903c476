package manifests

import (
	"strings"
	"testing"
)

func images() Images {
	all := Images{}
	for _, name := range []string{"efs-manager", "efs-stunnel", "efs-stunnel-nfsserver", "efs-worker"} {
		all[name] = "registry.example.com/storage/" + name + "@sha256:" + strings.Repeat("0", 64)
	}
	return all
}

func read(t *testing.T) Source {
	t.Helper()
	source, err := Read("../../../../deploy/kustomize")
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// TestImagesArePinned: that of mount Jobs, too, which is in an environment variable.
func TestImagesArePinned(t *testing.T) {
	for _, overlay := range []string{"eks", "openshift", "standalone"} {
		text, err := read(t).Overlay(overlay, images())
		if err != nil {
			t.Fatal(err)
		}
		for name, image := range images() {
			wanted := name != "efs-stunnel-nfsserver" || overlay == "standalone"
			if strings.Contains(string(text), ": "+image+"\n") != wanted {
				t.Errorf("overlay %s and the image %s: want that it has it: %v", overlay, image, wanted)
			}
			if strings.Contains(string(text), name+":v1") {
				t.Errorf("overlay %s has an image %s that is not the release's", overlay, name)
			}
		}
	}
}

// TestStandaloneHasOneServer: with its certificates, on both sides, and without AWS.
func TestStandaloneHasOneServer(t *testing.T) {
	text, err := read(t).Overlay("standalone", images())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"- --discovery=none\n", "- --nfs-servers\n", "- --shared-file-system\n", "efs-stunnel.gnuthought.com/server: nfs\n",
		"secretName: efs-nfs-server-tls\n", "secretName: efs-stunnel-nfs-client\n", "- --servers=efs-nfs-server\n", "storage: 10Gi\n",
	} {
		if !strings.Contains(string(text), part) {
			t.Errorf("it has no %q", part)
		}
	}
	if strings.Count(string(text), "kind: StatefulSet\n") != 1 || strings.Contains(string(text), "--file-system-tags") {
		t.Errorf("got\n%s", text)
	}
}

func TestOpenShiftDoesNotBuild(t *testing.T) {
	text, err := read(t).Overlay("openshift", images())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"BuildConfig", "ImageStream"} {
		if strings.Contains(string(text), "kind: "+kind) {
			t.Errorf("it has a %s", kind)
		}
	}
	// The replacements that are not those of the builds are kept.
	if !strings.Contains(string(text), "  name: efs-stunnel-agent-events\n  namespace: default\n") {
		t.Error("the agent's events are not in the namespace of Nodes")
	}
}

// TestNoDaemonSetNeedsFargate: its nodes have room for one pod, so others would be pending for ever. Hybrid nodes
// reach no mount target.
func TestNoDaemonSetNeedsFargate(t *testing.T) {
	s := read(t)
	components, err := s.Components()
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := s.EKS(images(), components...)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, object := range rendered.Resources() {
		if object.GetKind() != "DaemonSet" {
			continue
		}
		found++
		if text := object.MustYaml(); !strings.Contains(text, "key: eks.amazonaws.com/compute-type\n                operator: NotIn\n                values:\n                - fargate\n                - hybrid\n") {
			t.Errorf("it may have pods on Fargate:\n%s", text)
		}
	}
	if found != 2 {
		t.Errorf("%d DaemonSets, want the agents' and read-ahead", found)
	}
}

// TestLabelsOfEverybodyChangeNoInterface: whoever labels all objects, selectors included, replaces the labels that
// everybody has. Programs, Services and policies find each other by others.
func TestLabelsOfEverybodyChangeNoInterface(t *testing.T) {
	labels := map[string]any{"app.kubernetes.io/name": "platform", "app.kubernetes.io/component": "storage", "team": "platform"}
	objects, err := read(t).render("eks", func(k kustomization) {
		k.setImages(images())
		k.setComponents([]string{"admission", "monitoring", "network-policy", "read-ahead"})
		k["labels"] = []any{map[string]any{"pairs": labels, "includeSelectors": true}}
	})
	if err != nil {
		t.Fatal(err)
	}
	met := 0
	for _, object := range objects.Resources() {
		text, name := object.MustYaml(), object.GetKind()+" "+object.GetName()
		for owner, want := range map[string]string{
			"DaemonSet efs-stunnel":       "\n        efs-stunnel.gnuthought.com/program: node-agent\n", // of its pods
			"Deployment efs-manager":      "\n        efs-stunnel.gnuthought.com/program: manager\n",
			"Service efs-manager-metrics": "\n    efs-stunnel.gnuthought.com/program: manager\n",
			"Service efs-stunnel-metrics": "\n    efs-stunnel.gnuthought.com/program: node-agent\n",
			"ServiceMonitor efs-manager":  "\n    matchLabels:\n      efs-stunnel.gnuthought.com/program: manager\n",
			"ServiceMonitor efs-stunnel":  "\n    matchLabels:\n      efs-stunnel.gnuthought.com/program: node-agent\n",
			"NetworkPolicy efs-worker":    "\n  podSelector:\n    matchExpressions:\n",
			"NetworkPolicy efs-manager":   "\n    - podSelector:\n        matchExpressions:\n", // the workers
		} {
			if name != owner {
				continue
			}
			met++
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q:\n%s", name, want, text)
			}
		}
	}
	if met != 8 {
		t.Errorf("%d of 8 objects are rendered", met)
	}
}

// TestBaseIsWithoutTheOverlaysParts: users of other clusters add them themselves.
func TestBaseIsWithoutTheOverlaysParts(t *testing.T) {
	base, err := read(t).Base(images())
	if err != nil {
		t.Fatal(err)
	}
	text, err := base.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"--nfs-servers", "nfs-client", "fargate", "efs-read-ahead", "efs-stunnel-host-ports", "--file-system-tags", "--usage-interval"} {
		if strings.Contains(string(text), part) {
			t.Errorf("the base has %s", part)
		}
	}
	if !strings.Contains(string(text), "value: "+images()["efs-worker"]+"\n") {
		t.Error("the image of mount Jobs is not the release's")
	}
}
