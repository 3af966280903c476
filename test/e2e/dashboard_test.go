//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"gnuthought.com/efs-stunnel/test/support/dashboardtest"
)

// browserShowsInstallation: the plugin's dashboard in a headless browser has what the cluster has.
func browserShowsInstallation(l *lab) {
	ns := l.namespace("dashboard")
	l.usageIsCounted(ns)
	l.apply(ns, claim("refused", class, "file_system_id: fs-00000000"))
	l.waitForCause("FileSystemUnknown", "pvc", "refused", "-n", ns)
	document := dashboardtest.Document(l, strings.TrimSpace(l.lab("browser")), l.startDashboard())
	for _, want := range []string{
		"<title>(", fmt.Sprintf("<code>%s</code></th><td>", shared), fmt.Sprintf("<td>%d</td>", l.portOf(shared)),
		`<strong>node-1</strong><br><span class="soft">us-east-1a</span> <span class="good">ready`,
		`<strong>node-2</strong><br><span class="soft">us-east-1b</span> <span class="good">ready`,
		`<th scope="row">` + ns + "/refused</th>", "FileSystemUnknown", `<th scope="row">` + ns + "/counted</th>", "3.0 MiB",
		"Leader: " + l.leaseHolder(), "ProvisioningSucceeded", `<p id="stale" role="status" hidden="">`,
	} {
		if !strings.Contains(document, want) {
			l.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(document, `role="alert"`) {
		l.Error("the page has an error")
	}
	if l.Failed() {
		l.Log(document)
	}
}

// startDashboard runs the plugin's dashboard until the test ends, and returns its address.
func (l *lab) startDashboard() (url string) {
	l.Helper()
	cmd := exec.CommandContext(l.Context(), "bin/kubectl-efs_stunnel", "dashboard")
	cmd.Dir, cmd.Env, cmd.Stderr = l.root, append(os.Environ(), l.env...), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}      // an interrupted test cleans nothing up
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // as Ctrl-C
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	url, err = bufio.NewReader(out).ReadString('\n')
	l.Cleanup(func() {
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 0 {
			l.Errorf("the dashboard ended with %v", err)
		}
	})
	if err != nil {
		l.Fatal(err)
	}
	return strings.TrimSpace(url)
}
