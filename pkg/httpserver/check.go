package httpserver

import (
	"fmt"
	"net/http"
	"strings"
)

// Check is one check of health or readiness.
type Check struct {
	Name string
	// Func must not block: a probe has a second. Its error is for users.
	Func func() error
}

// report responds 200 if all checks pass, else 503. It lists them in both cases, as Kubernetes' own
// programs do, because kubelet's event and an administrator's curl show the response.
func report(checks []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var lines strings.Builder
		code, verdict := http.StatusOK, "ok"
		for _, check := range checks {
			if err := check.Func(); err != nil {
				code, verdict = http.StatusServiceUnavailable, "not ok"
				fmt.Fprintf(&lines, "[-] %s: %v\n", check.Name, err)
				continue
			}
			fmt.Fprintf(&lines, "[+] %s\n", check.Name)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprintf(w, "%s%s\n", &lines, verdict)
	})
}
