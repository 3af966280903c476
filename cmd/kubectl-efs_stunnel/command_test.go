package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// result is the exit code and the output of one run of the plugin.
type result struct {
	code           int
	stdout, stderr string
}

// invoke runs the plugin on a cluster that has some objects.
func invoke(t *testing.T, client *fake.Clientset, args ...string) result {
	t.Helper()
	return invokeIn(t.Context(), t, client, "", args...)
}

// invokeWith also gives the user's answer to a question.
func invokeWith(t *testing.T, client *fake.Clientset, answer string, args ...string) result {
	t.Helper()
	return invokeIn(t.Context(), t, client, answer, args...)
}

func invokeIn(ctx context.Context, t *testing.T, client *fake.Clientset, answer string, args ...string) result {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	const text = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, namespace: team}}]\n" +
		"clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	streams, in, out, errOut := genericiooptions.NewTestIOStreams()
	in.WriteString(answer)
	connect := func(genericclioptions.RESTClientGetter) (connection, error) {
		return connection{client: client, now: time.Now}, nil
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	code := run(ctx, args, streams, connect)
	return result{code, out.String(), errOut.String()}
}

// broken returns a cluster that does not answer.
func broken() *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused\x1b[2J")
	})
	return client
}

func TestExitCodes(t *testing.T) {
	tests := map[string]struct {
		client *fake.Clientset
		args   []string
		code   int
		stdout string // a part of it
		stderr string
	}{
		"problems":               {fake.NewClientset(), []string{"status"}, exitProblems, "ManagerMissing", ""},
		"problems as JSON":       {fake.NewClientset(), []string{"status", "-o", "json"}, exitProblems, `"cause": "ManagerMissing"`, ""},
		"problems as YAML":       {fake.NewClientset(), []string{"status", "-o", "yaml"}, exitProblems, "cause: ManagerMissing", ""},
		"no answer":              {broken(), []string{"status"}, exitUnknown, "", "error: reading daemonsets.apps: connection refused?[2J"},
		"a claim":                {fake.NewClientset(), []string{"doctor", "pvc", "data"}, exitProblems, "claim team/data: ", ""},
		"a claim elsewhere":      {fake.NewClientset(), []string{"doctor", "pvc/data", "-n", "other"}, exitProblems, "claim other/data: ", ""},
		"a node":                 {fake.NewClientset(), []string{"doctor", "node", "n1"}, exitProblems, "NodeMissing", ""},
		"a file system":          {fake.NewClientset(), []string{"doctor", "fs-0123456789abcdef0"}, exitProblems, "file system fs-0123456789abcdef0: ", ""},
		"everything":             {fake.NewClientset(), []string{"doctor", "-o", "json"}, exitProblems, `"subject": "the installation"`, ""},
		"a kind without a name":  {fake.NewClientset(), []string{"doctor", "pvc"}, exitUnknown, "", "want nothing, pvc NAME"},
		"an empty name":          {fake.NewClientset(), []string{"doctor", "pvc/"}, exitUnknown, "", "want nothing, pvc NAME"},
		"a pod":                  {fake.NewClientset(), []string{"doctor", "pod/web"}, exitProblems, "PodMissing", ""},
		"a file system by kind":  {fake.NewClientset(), []string{"doctor", "file-system", "fs-0123456789abcdef0"}, exitProblems, "file system fs-0123456789abcdef0: ", ""},
		"not an id":              {fake.NewClientset(), []string{"doctor", "../x"}, exitUnknown, "", "doctor .. x: want nothing"},
		"an unknown kind":        {fake.NewClientset(), []string{"doctor", "job", "x"}, exitUnknown, "", "want nothing, pvc NAME"},
		"an unknown flag":        {fake.NewClientset(), []string{"status", "--nothing"}, exitUnknown, "", "unknown flag"},
		"an unknown command":     {fake.NewClientset(), []string{"nothing"}, exitUnknown, "", "unknown command"},
		"too many arguments":     {fake.NewClientset(), []string{"status", "x"}, exitUnknown, "", "unknown command"},
		"an unknown format":      {fake.NewClientset(), []string{"status", "-o", "wide"}, exitUnknown, "", "json, yaml"},
		"preflight":              {fake.NewClientset(), []string{"preflight"}, exitProblems, "KubernetesTooOld", ""},
		"preflight as JSON":      {fake.NewClientset(), []string{"preflight", "-o", "json"}, exitProblems, `"cause": "KubernetesTooOld"`, ""},
		"preflight, no answer":   {broken(), []string{"preflight"}, exitUnknown, "", "error: "},
		"pods without an image":  {fake.NewClientset(), []string{"preflight", "--nodes"}, exitUnknown, "", "--image is missing"},
		"an image without pods":  {fake.NewClientset(), []string{"preflight", "--image", "x"}, exitUnknown, "", "want --nodes"},
		"no such ports":          {fake.NewClientset(), []string{"preflight", "--ports", "5-1"}, exitUnknown, "", "--ports 5-1: want first-last"},
		"privileged ports":       {fake.NewClientset(), []string{"preflight", "--ports", "80-90"}, exitUnknown, "", "want ports from 1024 on"},
		"no such file of roots":  {fake.NewClientset(), []string{"preflight", "--nodes", "--image", "x", "--ca-file", "/nowhere"}, exitUnknown, "", "--ca-file: "},
		"not a file system":      {fake.NewClientset(), []string{"preflight", "--nodes", "--image", "x", "--file-system", "x"}, exitUnknown, "", "--file-system x: "},
		"no region":              {fake.NewClientset(), []string{"preflight", "--nodes", "--image", "x", "--file-system", "fs-0123456789abcdef0"}, exitUnknown, "", "want --aws-region"},
		"not an address":         {fake.NewClientset(), []string{"preflight", "--nodes", "--image", "x", "--file-system", "a=b"}, exitUnknown, "", "want NAME=ADDRESS"},
		"not a port":             {fake.NewClientset(), []string{"dashboard", "--port", "65536"}, exitUnknown, "", "--port 65536: want a port up to 65535"},
		"help names the plugin":  {fake.NewClientset(), []string{"--help"}, exitHealthy, "kubectl efs-stunnel [command]", ""},
		"another installation":   {fake.NewClientset(), []string{"status", "--system-namespace", "efs"}, exitProblems, "namespace efs:", ""},
		"completion of formats":  {fake.NewClientset(), []string{"__complete", "status", "-o", ""}, exitHealthy, "json\nyaml\n", ""},
		"completion of subjects": {fake.NewClientset(), []string{"__complete", "sta"}, exitHealthy, "status\t", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := invoke(t, tt.client, tt.args...)
			if got.code != tt.code || !strings.Contains(got.stdout, tt.stdout) || !strings.Contains(got.stderr, tt.stderr) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestNamespacesAreCompleted(t *testing.T) {
	var objects []runtime.Object
	for _, name := range []string{"team-a", "team-b", "other"} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, flag := range []string{"--namespace", "--system-namespace"} {
		got := completions(t, fake.NewClientset(objects...), "status", flag, "te")
		if strings.Join(got, " ") != "team-a team-b" {
			t.Errorf("%s: %q", flag, got)
		}
	}
	if got := completions(t, broken(), "status", "--namespace", ""); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestSubjectsAreCompleted(t *testing.T) {
	table := ports.Encode(ports.Table{Targets: map[string]ports.Target{"fs-1": {Port: 20490}, "fs-2": {Port: 20491}}})
	objects := []runtime.Object{
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-efs-stunnel", Name: wellknown.TargetsConfigMap},
			Data:       map[string]string{wellknown.TargetsKey: string(table)},
		},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web-0"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "logs"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "dump"}},
	}
	tests := map[string]struct {
		args []string
		want string
	}{
		"kinds and file systems":      {[]string{"doctor", ""}, "pvc pod sv node file-system fs-1 fs-2"},
		"file systems":                {[]string{"doctor", "fs"}, "fs-1 fs-2"},
		"file systems of the kind":    {[]string{"doctor", "file-system", ""}, "fs-1 fs-2"},
		"pods":                        {[]string{"doctor", "pod", ""}, "web-0"},
		"of another namespace":        {[]string{"doctor", "--system-namespace", "efs", ""}, "pvc pod sv node file-system"},
		"claims of the namespace":     {[]string{"doctor", "pvc", ""}, "data logs"},
		"claims that begin with d":    {[]string{"doctor", "pvc", "d"}, "data"},
		"claims of another namespace": {[]string{"doctor", "-n", "other", "pvc", "d"}, "dump"},
		"nodes":                       {[]string{"doctor", "node", ""}, "n1"},
		"nothing after a name":        {[]string{"doctor", "node", "n1", ""}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(completions(t, fake.NewClientset(objects...), tt.args...), " "); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// completions returns the shell's offers for the last argument.
func completions(t *testing.T, client *fake.Clientset, args ...string) []string {
	t.Helper()
	got := invoke(t, client, append([]string{"__complete"}, args...)...)
	var names []string
	for line := range strings.Lines(got.stdout) {
		if name := strings.TrimSpace(line); name != "" && !strings.HasPrefix(name, ":") {
			names = append(names, name)
		}
	}
	return names
}
