package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func printed[T printing.Report](t *testing.T, format string, r T) string {
	t.Helper()
	var out strings.Builder
	if err := printing.Write(&out, format, r, now); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestStatusOfAHealthyInstallationIsOneScreen(t *testing.T) {
	s := healthy(t)
	s.Claims[1].Annotations = map[string]string{wellknown.AnnotationNextSweep: now.Add(3 * time.Hour).Format(time.RFC3339)}
	want := `efs-stunnel in namespace efs-stunnel: healthy

PROGRAM      VERSION   READY   IMAGE
manager      1.2       2/2     registry.example.com/efs-manager:1.2
agents       1.2       2/2     registry.example.com/efs-stunnel:1.2
mount Jobs   1.2       -       registry.example.com/efs-worker:1.2

Leader: efs-manager-1_x, renewed 3s ago

FILE SYSTEM            NAME     PORT    STATE   MOUNT TARGETS   VOLUMES   NEXT SWEEP
fs-0123456789abcdef0   shared   20490   ok      us-east-1a      1         in 3h
Trash: kubectl efs-stunnel trash list

Agents: 2 of 2 nodes are ready
NODE   READY   VERSION   TUNNELS   REASON
n1     true    1.2       ok
n2     true    1.2       ok

Waiting claims: 0

Jobs that run or failed: 0

Volumes: 1 Bound
`
	if diff := cmp.Diff(want, printed(t, "", NewStatus(s))); diff != "" {
		t.Errorf("status mismatch (-want +got):\n%s", diff)
	}
}

func TestStatusShowsProblemsFirst(t *testing.T) {
	s := healthy(t)
	says(pending(s), "NoMountJob", "no mount Job can begin: quota")
	s.Pods = s.Pods[1:]
	withTarget(s, func(target *ports.Target) {
		target.AccessPoints = map[string]ports.AccessPoint{"fsap-0123456789abcdef0": {Port: 20491}}
	})
	text := printed(t, "", NewStatus(s))
	for _, want := range []string{
		"healthy",
	} {
		if strings.Contains(text, want) {
			t.Errorf("it contains %q:\n%s", want, text)
		}
	}
	last := 0
	for _, want := range []string{
		": installation: 1 problem; claims: 1 problem", "PROBLEM node n1: AgentMissing", "PROBLEM claim team/new: NoMountJob", "  do: ", "PROGRAM",
		"  fsap-0123456789abcdef0", "Agents: 1 of 2", "Waiting claims: 1", "team/new",
	} {
		i := strings.Index(text[last:], want)
		if i < 0 {
			t.Fatalf("it lacks %q after %d:\n%s", want, last, text)
		}
		last += i
	}
}

func TestProblemsOfTheDataPathComeBeforeThoseOfConfiguration(t *testing.T) {
	s := healthy(t)
	for _, name := range []string{"wrong-1", "wrong-2"} {
		wrong := s.Classes[0].DeepCopy()
		wrong.Name, wrong.Parameters = name, map[string]string{"unheardOf": "1"}
		s.Classes = append(s.Classes, wrong)
	}
	reject(pending(s))
	tunnelProblem(s, wellknown.EventTunnelUnhealthy, "no answer", time.Minute)
	s.Lease = nil
	status := NewStatus(s)
	want := []string{"node n1", "lease efs-manager", "storage class wrong-1", "storage class wrong-2", "claim team/new"}
	var got []string
	for _, r := range status.Problems {
		got = append(got, r.Object)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems mismatch (-want +got):\n%s", diff)
	}
	if want := "installation: 2 problems; claims: 1 problem; classes: 2 problems"; status.Summary() != want {
		t.Errorf("%q, want %q", status.Summary(), want)
	}
	s = healthy(t)
	reject(pending(s))
	if got, want := NewStatus(s).Summary(), "installation: 0 problems; claims: 1 problem"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStatusShowsTunnelsByNode(t *testing.T) {
	s := healthy(t)
	s.Nodes, s.Pods = append(s.Nodes, newNode("n3")), append(s.Pods, agentPod("n3"))
	s.NodeTunnels = append(s.NodeTunnels, nodeTunnels("n3"))
	tunnelProblem(s, wellknown.EventTunnelUnhealthy, "no answer\x1b[2J", time.Minute)
	nodeEvent(s, wellknown.EventTunnelMoved, "moved", time.Minute)
	s.Pods[1].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: "agent crashed"}}
	want := `Agents: 2 of 3 nodes are ready
NODE   READY   VERSION   TUNNELS                       REASON
n1     true    1.2       TunnelMoved,TunnelUnhealthy   no answer?[2J (for 60s)
n2     false   1.2       unknown                       agent crashed
n3     true    1.2       ok
`
	if text := printed(t, "", NewStatus(s)); !strings.Contains(text, want) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if text := printed(t, "json", NewStatus(s)); !strings.Contains(text, `"cause": "TunnelUnhealthy"`) || strings.Contains(text, `"tunnels": null`) {
		t.Error(text)
	}
}

func TestStatusSaysWhichRightsAreMissing(t *testing.T) {
	s := healthy(t)
	s.Lease, s.Unread = nil, []Unread{{Verb: "get", Resource: "leases.coordination.k8s.io", Namespace: s.Namespace, Name: wellknown.ManagerLease}}
	status := NewStatus(s)
	if status.Level != Unknown {
		t.Errorf("level %s", status.Level)
	}
	if text := printed(t, "", status); !strings.Contains(text, "get leases.coordination.k8s.io efs-manager in namespace efs-stunnel") {
		t.Error(text)
	}
}

func TestLargeInstallationsAreCut(t *testing.T) {
	s := healthy(t)
	for i := range 20 { // each with a cause of its own
		says(pending(s), "SetupFailed", fmt.Sprintf("failure %d", i))
	}
	for range 20 {
		name := "x" + string(rune('a'+len(s.Nodes)))
		s.Nodes, s.Pods = append(s.Nodes, newNode(name)), append(s.Pods, agentPod(name))
	}
	text := printed(t, "", NewStatus(s))
	if !strings.Contains(text, "… and 8 more claims or volumes") || !strings.Contains(text, "… and 8 more:") || strings.Contains(text, "n1 ") {
		t.Error(text)
	}
}

func TestFormats(t *testing.T) {
	s := healthy(t)
	var fromJSON, fromYAML Status
	if err := json.Unmarshal([]byte(printed(t, "json", NewStatus(s))), &fromJSON); err != nil {
		t.Error(err)
	}
	if err := yaml.Unmarshal([]byte(printed(t, "yaml", NewStatus(s))), &fromYAML); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(fromJSON.FileSystems, fromYAML.FileSystems); diff != "" || fromJSON.Level != Note && fromJSON.Level != OK || len(fromJSON.FileSystems) != 1 {
		t.Errorf("level %s, mismatch (-json +yaml):\n%s", fromJSON.Level, diff)
	}
	if text := printed(t, "json", NewStatus(&Snapshot{Now: now})); strings.Contains(text, "null") {
		t.Errorf("a list is null:\n%s", text)
	}
	if err := printing.CheckFormat("table"); err == nil {
		t.Error("a format that does not exist is accepted")
	}
}

func TestLine(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"plain":             {"Größe 5 µs …", "Größe 5 µs …"},
		"lines":             {"a\nb\r\n\tc\u2028d", "a b   c d"},
		"a terminal's code": {"a\x1b[2Jb\x9b31m", "a?[2Jb?31m"},
		"invalid UTF-8":     {"a\xff\xfeb", "a?b"},
		"order of letters":  {"a\u202eb\u200bc", "a?b?c"},
		"a bell":            {"\a", "?"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := printing.Line(tt.text); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// hostile is everything that a tenant or a process on a node can write into objects.
func hostile(t *testing.T) *Snapshot {
	t.Helper()
	const text = "x\x1b[2J\nFAKE: healthy\r\u202e\xff"
	s := healthy(t)
	claim := pending(s)
	says(claim, Cause(text), text)
	s.Nodes[0].Name += text
	s.Pods[1].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: text}}
	*s.Lease.Spec.HolderIdentity = text
	s.Manager = deployment("m:"+text, "w:"+text)
	s.Volumes[0].Status.Phase = text
	s.Claims[1].Annotations = map[string]string{wellknown.AnnotationNextSweep: text}
	tableProblem(s, wellknown.EventDiscoveryFailed, text, time.Minute)
	withTarget(s, func(target *ports.Target) { target.Name = "x\x1b[2J\nFAKE: healthy\r\u202e" })
	s.Unread = []Unread{{Verb: "get", Resource: text, Namespace: text, Name: text}}
	_, pod := addJob(t, s, setup(t, newClaim("third", "00000000-0000-4000-8000-000000000003")))
	waitsForMount(s, pod, text)
	return s
}

func expectHarmless(t *testing.T, format, text string) {
	t.Helper()
	if !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\r\u202e") {
		t.Errorf("%s has dangerous characters: %q", format, text)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimLeft(line, ` "-`), "FAKE") {
			t.Errorf("%s has a line of an object: %q", format, line)
		}
	}
	for _, escaped := range []string{`\u001b`, `\e`, `\u202e`, `\n`} {
		if strings.Contains(text, escaped) {
			t.Errorf("%s has %s, which programs turn into the character", format, escaped)
		}
	}
}

func TestHostileObjectsAreHarmless(t *testing.T) {
	for _, format := range append(printing.Formats(), "") {
		expectHarmless(t, "status "+format, printed(t, format, NewStatus(hostile(t))))
	}
}
