// Package dashboardtest opens the dashboard in a headless browser, for tests.
package dashboardtest

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// screenshotVariable names a file that has the page's picture after the test.
const screenshotVariable = "EFS_STUNNEL_SCREENSHOT"

// Document is the page at a URL as a browser, a Chromium's program, has it after two refreshes. The test ends
// if the browser fails.
func Document(t testing.TB, program, url string) string {
	t.Helper()
	args := []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir=" + t.TempDir(), "--window-size=1280,1600",
		"--virtual-time-budget=12000", // two refreshes
	}
	if file := os.Getenv(screenshotVariable); file != "" {
		args = append(args, "--screenshot="+file)
	}
	var out, errOut bytes.Buffer
	browser := exec.CommandContext(t.Context(), program, append(args, "--dump-dom", url)...)
	browser.Stdout, browser.Stderr = &out, &errOut
	if err := browser.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &errOut)
	}
	return out.String()
}
