package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// agent returns a pod whose log the fake client has.
func agent() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.Namespace, Name: "efs-stunnel-x", Labels: mountjobs.AgentLabels()}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent"}}
	return pod
}

// unpack returns the names and the text of all files.
func unpack(t *testing.T, name string) (names []string, all string) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for packed := tar.NewReader(compressed); ; {
		header, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return names, all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(packed)
		if err != nil {
			t.Fatal(err)
		}
		_, base, _ := strings.Cut(header.Name, "/")
		names, all = append(names, base), all+string(text)
	}
}

func TestCollectWritesANewFile(t *testing.T) {
	t.Chdir(t.TempDir())
	got := invoke(t, fake.NewClientset(agent()), "collect")
	found, err := filepath.Glob("efs-stunnel-*T*Z.tar.gz")
	if got.code != exitHealthy || strings.Contains(got.stderr, "error") || err != nil || len(found) != 1 {
		t.Fatalf("%+v, files %q, %v", got, found, err)
	}
	names, text := unpack(t, found[0])
	if names[0] != "README.txt" || !strings.Contains(text, "fake logs") {
		t.Errorf("files %q:\n%s", names, text)
	}
	for _, name := range names {
		if !strings.Contains(got.stdout, name) {
			t.Errorf("%s is not listed:\n%s", name, got.stdout)
		}
	}
	info, err := os.Stat(found[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestCollectOverwritesNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "issue.tar.gz")
	if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, fake.NewClientset(), "collect", "-o", name)
	text, err := os.ReadFile(name)
	if got.code != exitUnknown || !strings.Contains(got.stderr, "issue.tar.gz exists") || err != nil || string(text) != "mine" {
		t.Errorf("%+v, file %q, %v", got, text, err)
	}
}

func TestCollectLeavesNoFileOnError(t *testing.T) {
	name := filepath.Join(t.TempDir(), "issue.tar.gz")
	got := invoke(t, broken(), "collect", "-o", name)
	if _, err := os.Stat(name); got.code != exitUnknown || got.stderr == "" || !os.IsNotExist(err) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCollectSaysWhichRightIsMissing(t *testing.T) {
	client := fake.NewClientset(agent())
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
	})
	name := filepath.Join(t.TempDir(), "issue.tar.gz")
	got := invoke(t, client, "collect", "-o", name)
	_, text := unpack(t, name)
	const right = "list nodes in all namespaces"
	if got.code != exitUnknown || !strings.Contains(got.stderr, right) || !strings.Contains(text, right) {
		t.Errorf("%+v\n%s", got, text)
	}
}
