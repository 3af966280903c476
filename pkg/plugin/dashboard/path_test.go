package dashboard

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
)

// onNode has the first node with one tunnel to a mount target that is in use.
func onNode(tunnel v1alpha1.Tunnel) *inspect.Snapshot {
	s := snapshot("x")
	s.Nodes[0].Labels = map[string]string{corev1.LabelTopologyZone: "us-east-1a"}
	tunnel.Name, tunnel.Port, tunnel.InUse = fsID, 20490, true
	s.NodeTunnels[0].Status = v1alpha1.NodeTunnelsStatus{Total: 3, InUse: 1, Tunnels: []v1alpha1.Tunnel{tunnel}}
	return s
}

func TestPathHasZoneAndLatency(t *testing.T) {
	for name, tt := range map[string]struct {
		snapshot *inspect.Snapshot
		want     []string
		not      string
	}{
		"its own zone": {onNode(v1alpha1.Tunnel{MountTarget: "10.0.0.4", LatencyMillis: 2, Lanes: 3}), []string{`<div class="lane good">`, "≤ 2 ms", "3 lanes", "us-east-1a by port 20490", "tunnels without clients: 2"}, "other zone"},
		"another zone": {onNode(v1alpha1.Tunnel{MountTarget: "10.0.1.4"}), []string{`<div class="lane warn">`, "us-east-1b by port 20490", "other zone"}, " lanes"},
		"a problem":    {onNode(v1alpha1.Tunnel{MountTarget: "10.0.0.4", Problems: []v1alpha1.Problem{{Reason: "PortTaken", Message: "ss has it"}}}), []string{`<div class="lane bad">`, "PortTaken", "ss has it"}, "other zone"},
	} {
		text := get(t, handlerOf(tt.snapshot, nil), nil).Body.String()
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it lacks %q", name, want)
			}
		}
		if strings.Contains(text, tt.not) {
			t.Errorf("%s: it has %q", name, tt.not)
		}
	}
}

func TestNumbersAtTheTop(t *testing.T) {
	text := get(t, handlerOf(onNode(v1alpha1.Tunnel{}), nil), nil).Body.String()
	for _, want := range []string{
		`<strong class="">0</strong>claims served <span class="bad">3 waiting</span>`,
		`<strong class="">0</strong>file systems usable <span class="bad">of 1</span>`, // no root volume,
		`<strong class="">1</strong>nodes ready <span class="bad">of 2</span>`,
		`<strong class="good">1</strong>tunnels in use <span class="soft">of 3; 0 failing</span>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if strings.Index(text, "numbers") > strings.Index(text, "<h2>Problems") {
		t.Error("problems come before the numbers")
	}
}

func TestSearchFindsVolumes(t *testing.T) {
	h := handlerOf(snapshot("x"), nil)
	for query, want := range map[string]struct {
		found, left string
	}{
		"?q=team/large": {"1 of 1 shown", `<th scope="row">team/small</th><td class="line">`},
		"?q=":           {"3 of 3 shown", "no such claim"},
		"?q=nowhere":    {"0 of 0 shown", `<meter`},
	} {
		text := get(t, h, func(r *http.Request) { r.URL.RawQuery = query[1:] }).Body.String()
		if !strings.Contains(text, want.found) || strings.Contains(text, want.left) {
			t.Errorf("%s: want %q", query, want.found)
		}
	}
}

// TestOneCauseIsOneEntry: claims with one message, of which the page names the others below it.
func TestOneCauseIsOneEntry(t *testing.T) {
	text := get(t, handlerOf(snapshot("x"), nil), nil).Body.String()
	if got := strings.Count(text, `<span class="bad">ClaimRejected</span><br>`); got != 1 || !strings.Contains(text, "2 more from it, or of the same cause") {
		t.Errorf("%d entries", got)
	}
}

// TestStepsOfARemedy: each command has a button of its own, and pages are links.
func TestStepsOfARemedy(t *testing.T) {
	text := get(t, handlerOf(snapshot("x"), nil), nil).Body.String()
	for _, want := range []string{
		`the manager repairs it within seconds<br>if not:<br><code>kubectl describe pv efs-stunnel-` + fsID + `</code> <button type="button">copy</button><br><code>kubectl -n efs-stunnel describe pvc`,
		`<a href="` + wellknown.DocsURL + `troubleshoot/six-steps.md" target="_blank" rel="noreferrer">`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %s", want)
		}
	}
	for remedy, want := range map[string]string{
		"do what the message says":                               "do what the message says",
		"see: " + wellknown.DocsURL + "a.md; without: kubectl x": "see:|" + wellknown.DocsURL + "a.md|without:|kubectl x",
	} {
		if got := strings.Join((page{}).Steps(remedy), "|"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if (page{}).IsPage("https://example.com/") || !(page{}).IsPage(wellknown.DocsURL+"a.md") {
		t.Error("a link leads elsewhere than to the documentation")
	}
}

func TestCommandsCanBeCopied(t *testing.T) {
	text := get(t, handlerOf(snapshot("x"), nil), nil).Body.String()
	if !strings.Contains(text, `<code>kubectl efs-stunnel doctor pvc reports -n team</code> <button type="button">copy`) {
		t.Error("the doctor's command has no button")
	}
	for remedy, want := range map[string]bool{"kubectl describe node n": true, "kubectl get pvc; if it was deleted": false, "do what the message says": false} {
		if got := (page{}).IsCommand(remedy); got != want {
			t.Errorf("%s: %v", remedy, got)
		}
	}
}
