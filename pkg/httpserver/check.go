package httpserver

import (
	"fmt"
	"net/http"
	"strings"
)

// Check is one thing that must be well.
type Check struct {
	Name string
	// Func must not wait: a probe has a second. Its error is for people.
	Func func() error
}

// report answers 200 when all checks pass, else 503. Either way it lists them, as Kubernetes'
// own programs do, because the answer is what kubelet's event and an administrator's curl show.
func report(checks []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var lines strings.Builder
		code := http.StatusOK
		for _, check := range checks {
			if err := check.Func(); err != nil {
				code = http.StatusServiceUnavailable
				fmt.Fprintf(&lines, "[-] %s: %v\n", check.Name, err)
				continue
			}
			fmt.Fprintf(&lines, "[+] %s\n", check.Name)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprintf(w, "%s%s\n", &lines, verdict(code))
	})
}

func verdict(code int) string {
	if code == http.StatusOK {
		return "ok"
	}
	return "not ok"
}
