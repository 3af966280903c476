package main

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

func TestRun(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	tests := map[string]struct {
		args           string
		code           int
		stdout, stderr string // "" for nothing at all
	}{
		"help":                       {"--help", 0, "--efs-polling-interval duration", ""},
		"short help":                 {"-h", 0, "Rarely needed:", ""},
		"version":                    {"version", 0, "manager ", ""},
		"version's flag":             {"--version", 0, "manager ", ""},
		"a bad setting":              {"--log-format=xml", 2, "", "manager: --log-format \"xml\": want text or json\n"},
		"no image":                   {"", 2, "", "manager: --worker-image or WORKER_IMAGE is missing"},
		"no cluster":                 {image, 1, "", `level=ERROR msg="manager ends because of an error" err="looking for the apiserver`},
		"help for certificates":      {"certificates --help", 0, "--servers names", ""},
		"certificates of no server":  {"certificates", 2, "", "manager certificates: --servers is missing"},
		"certificates of a bad name": {"certificates --servers=A", 2, "", "manager certificates: --servers \"A\""},
		"certificates outside":       {"certificates --servers=nfs", 1, "", `level=ERROR msg="certificates are not all in order" err="looking for the apiserver`},
		"no file":                    {image + "--kubeconfig=/no/such --log-format=json", 1, "", `"msg":"manager ends because of an error","err":"reading --kubeconfig`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if got := run(t.Context(), strings.Fields(tt.args), outside(nil), &stdout, &stderr); got != tt.code {
				t.Errorf("exit code %d, want %d", got, tt.code)
			}
			wantText(t, "stdout", stdout.String(), tt.stdout)
			wantText(t, "stderr", stderr.String(), tt.stderr)
			if strings.Count(stderr.String(), "\n") > 1 {
				t.Errorf("more than one line: %s", stderr.String())
			}
		})
	}
}

func wantText(t *testing.T, where, got, want string) {
	t.Helper()
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("%s is %q, want %q", where, got, want)
	}
}

func TestMemoryLimit(t *testing.T) {
	for container, want := range map[string]int64{
		"536870912": 483183819, "1000": 900, "": math.MaxInt64, "0": math.MaxInt64, "-1": math.MaxInt64, "512Mi": math.MaxInt64,
	} {
		if got := memoryLimit(container); got != want {
			t.Errorf("%q: got %d, want %d", container, got, want)
		}
	}
}
