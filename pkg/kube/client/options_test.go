package client_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/kube/client"
)

func TestRESTConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://in-file:6443"}}], users: [{name: u, user: {token: secret}}]}`
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ kubeconfig, master, host, err string }{
		"a file":             {file, "", "https://in-file:6443", ""},
		"an address over it": {file, "https://other:6443", "https://other:6443", ""},
		"an address alone":   {"", "http://127.0.0.1:8001", "http://127.0.0.1:8001", ""},
		"no such file":       {"/no/such/file", "", "", `reading --kubeconfig "/no/such/file"`},
		"nothing, outside":   {"", "", "", "outside, set --kubeconfig"},
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := (&client.Options{Kubeconfig: tt.kubeconfig, Master: tt.master}).RESTConfig()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q in it", err, tt.err)
				}
				return
			}
			if err != nil || config.Host != tt.host {
				t.Errorf("got %+v and %v, want %s", config, err, tt.host)
			}
		})
	}
}
