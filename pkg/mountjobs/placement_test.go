package mountjobs_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func TestNodesToAvoid(t *testing.T) {
	tests := map[string]struct {
		failed []string
		agents []*corev1.Pod
		want   []string
	}{
		"nothing failed":                     {nil, []*corev1.Pod{agent("n1", true)}, nil},
		"another node is ready":              {[]string{"n1"}, []*corev1.Pod{agent("n1", true), agent("n2", true)}, []string{"n1"}},
		"the only node there is":             {[]string{"n1"}, []*corev1.Pod{agent("n1", true)}, nil},
		"every node has failed":              {[]string{"n1", "n2"}, []*corev1.Pod{agent("n1", true), agent("n2", true)}, nil},
		"the other one is not ready":         {[]string{"n1"}, []*corev1.Pod{agent("n1", true), agent("n2", false)}, nil},
		"the other one is not scheduled yet": {[]string{"n1"}, []*corev1.Pod{agent("n1", true), agent("", true)}, nil},
		"no agent is known":                  {[]string{"n1"}, nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := mountjobs.NodesToAvoid(tt.failed, tt.agents); !slices.Equal(got, tt.want) {
				t.Errorf("NodesToAvoid = %v, want %v", got, tt.want)
			}
		})
	}
}

// TestTakes is about nodes with an agent where a Job would wait in vain.
func TestTakes(t *testing.T) {
	tainted := func(key string, effect corev1.TaintEffect) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Value: "gpu", Effect: effect}}}}
	}
	wide := mountjobs.Settings{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
	cordoned := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	labelled := func(value string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": value}}}
	}
	pooled := mountjobs.Settings{NodeSelector: map[string]string{"pool": "storage"}}
	going := &corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: created}}}
	tests := map[string]struct {
		settings mountjobs.Settings
		node     *corev1.Node
		want     bool
	}{
		"plain":                 {node: &corev1.Node{}, want: true},
		"not known":             {},
		"being deleted":         {node: going},
		"cordoned":              {node: cordoned},
		"cordoned, tolerated":   {wide, cordoned, true},
		"dedicated":             {node: tainted("dedicated", corev1.TaintEffectNoSchedule)},
		"dedicated, tolerated":  {wide, tainted("dedicated", corev1.TaintEffectNoSchedule), true},
		"evicting":              {node: tainted("dedicated", corev1.TaintEffectNoExecute)},
		"better not":            {node: tainted("dedicated", corev1.TaintEffectPreferNoSchedule), want: true},
		"control plane":         {node: tainted("node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule), want: true},
		"not ready":             {node: tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)},
		"of the pool":           {pooled, labelled("storage"), true},
		"of another pool":       {pooled, labelled("web"), false},
		"of no pool":            {pooled, &corev1.Node{}, false},
		"agent was never ready": {node: tainted("efs-stunnel.gnuthought.com/agent-not-ready", corev1.TaintEffectNoSchedule)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.settings.Takes(tt.node); got != tt.want {
				t.Errorf("Takes = %v, want %v", got, tt.want)
			}
		})
	}
}

// TestPlacementSettingsAreOnEveryKindOfJob: also those that administrators create.
func TestPlacementSettingsAreOnEveryKindOfJob(t *testing.T) {
	s := settings()
	var err error
	if s.Tolerations, err = mountjobs.ParseTolerations("dedicated=storage:NoSchedule"); err != nil {
		t.Fatal(err)
	}
	s.NodeSelector = map[string]string{"pool": "storage"}
	spec := mountjobs.Spec{Settings: s, FileSystemID: fileSystem, Number: 1}
	of := func(kind mountjobs.Kind) mountjobs.Spec {
		spec := spec
		spec.Kind = kind
		return spec
	}
	sweep, errSweep := mountjobs.Build(of(mountjobs.Sweep))
	survey, errSurvey := mountjobs.Build(of(mountjobs.Survey))
	ledger, errLedger := mountjobs.BuildLedger(spec, "bcdfg", requests.Request{Do: requests.ListTrash})
	spec.Operations = many(1)
	mount, errMount := mountjobs.Build(spec)
	if err := errors.Join(errSweep, errSurvey, errLedger, errMount); err != nil {
		t.Fatal(err)
	}
	for _, job := range []*batchv1.Job{sweep, survey, ledger, mount} {
		pod := job.Spec.Template.Spec
		if !slices.Contains(pod.Tolerations, s.Tolerations[0]) || pod.NodeSelector["pool"] != "storage" {
			t.Errorf("Job %s has tolerations %v and selector %v", job.Name, pod.Tolerations, pod.NodeSelector)
		}
	}
}

func TestTolerationsAreParsed(t *testing.T) {
	for text, want := range map[string][]corev1.Toleration{
		"":                        nil,
		"gpu":                     {{Key: "gpu", Operator: corev1.TolerationOpExists}},
		"example.com/team=:":      nil,
		"spot:NoExecute":          {{Key: "spot", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
		"team=a,team=:NoSchedule": {{Key: "team", Operator: corev1.TolerationOpEqual, Value: "a"}, {Key: "team", Operator: corev1.TolerationOpEqual, Effect: corev1.TaintEffectNoSchedule}},
	} {
		got, err := mountjobs.ParseTolerations(text)
		if diff := cmp.Diff(want, got); diff != "" || (err != nil) != strings.HasSuffix(text, ":") {
			t.Errorf("%q: %v, mismatch (-want +got):\n%s", text, err, diff)
		}
	}
}

func agent(node string, ready bool) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	return pod
}
