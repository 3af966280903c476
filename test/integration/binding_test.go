//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/test/integration/cluster"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// createAnnotationPolicy creates the policy of the component "fast-binding" for the environment's provisioner, and
// waits until the apiserver has observed it.
func createAnnotationPolicy(env *testenv.Env, t *testing.T) {
	t.Helper()
	for _, object := range render(t, filepath.Join(kustomizations, "../../test/integration/testdata/fast-binding")) {
		kind := object.GetKind()
		if !strings.HasPrefix(kind, "MutatingAdmissionPolicy") {
			continue
		}
		text, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := object.UnmarshalJSON([]byte(strings.ReplaceAll(string(text), wellknown.DefaultProvisioner+"'", env.Provisioner+"'"))); err != nil {
			t.Fatal(err)
		}
		resource := map[string]string{"MutatingAdmissionPolicy": "mutatingadmissionpolicies", "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings"}[kind]
		api := env.Dynamic.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
		if _, err := api.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := api.Delete(context.WithoutCancel(t.Context()), object.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestClaimsAreAnnotatedAtCreation where kube-controller-manager would annotate them, and nowhere else.
func TestClaimsAreAnnotatedAtCreation(t *testing.T) {
	env := newEnv(t)
	createAnnotationPolicy(env, t)
	now := env.NewClass("now", nil).Name
	waits := env.NewClass("waits", nil, waitingForConsumer).Name
	create := func(ctx context.Context, class string, edits ...func(*corev1.PersistentVolumeClaim)) (map[string]string, error) {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{GenerateName: "claim-"}}
		claim.Spec.StorageClassName = &class
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		claim.Spec.Resources.Requests = oneGibibyte()
		for _, edit := range edits {
			edit(claim)
		}
		created, err := env.Client.CoreV1().PersistentVolumeClaims(env.Team).Create(ctx, claim, dryRun())
		if err != nil {
			return nil, err
		}
		return created.Annotations, nil
	}
	annotated := func(annotations map[string]string) bool {
		return annotations[wellknown.AnnotationStorageProvisioner] == env.Provisioner &&
			annotations[wellknown.AnnotationBetaStorageProvisioner] == env.Provisioner
	}
	env.Eventually("the apiserver has observed the policy", func(ctx context.Context) error {
		annotations, err := create(ctx, now)
		if err == nil && !annotated(annotations) {
			err = fmt.Errorf("the annotations are %v", annotations)
		}
		return err
	})
	onNode := func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations = map[string]string{wellknown.AnnotationSelectedNode: "node", "example.com/kept": "yes"}
	}
	for name, tt := range map[string]struct {
		class string
		edit  func(*corev1.PersistentVolumeClaim)
		want  bool
	}{
		"other annotations":         {now, onNode, true},
		"waits for a consumer":      {waits, func(*corev1.PersistentVolumeClaim) {}, false},
		"a node is selected":        {waits, onNode, true},
		"names a volume":            {now, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, false},
		"a class that is not there": {env.Named("missing"), func(*corev1.PersistentVolumeClaim) {}, false},
		"the class by its older key": {waits, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{wellknown.AnnotationStorageClass: now}
		}, true},
	} {
		annotations, err := create(t.Context(), tt.class, tt.edit)
		if err != nil || annotated(annotations) != tt.want || !tt.want && annotations[wellknown.AnnotationStorageProvisioner] != "" {
			t.Errorf("%s: got %v, %v, want them: %v", name, annotations, err, tt.want)
		}
	}
}

// TestLateBinderIsPassedWithoutLoss: a throttled controller-manager that is stopped and killed in between, and two
// leaders one after the other, with the rights of the component only, under the policies of the component "admission".
// No claim is Lost or bound to two volumes, with WaitForFirstConsumer neither.
func TestLateBinderIsPassedWithoutLoss(t *testing.T) {
	c, f := startThrottled(t)
	f.linger = time.Hour // a worker waits: without the controller-manager, no other Job gets a pod
	registry := prometheus.NewRegistry()
	first := f.startBindingManager(registry)
	f.waitForBound(f.createClaim("before"))
	const unannotated = 240
	count := unannotated
	if everyCrash {
		count = 10_000
	}
	claims := f.createClaims(count, func(i int, claim *corev1.PersistentVolumeClaim) {
		if i >= unannotated { // as the component has it, or kube-controller-manager would annotate for half an hour
			claim.Annotations = f.annotated()
		}
	})
	waits := f.NewClass("waits", nil, waitingForConsumer).Name
	for i := range 20 {
		claims = append(claims, f.NewClaim(fmt.Sprintf("claim-waits-%02d", i), waits, func(claim *corev1.PersistentVolumeClaim) {
			claim.Annotations = map[string]string{wellknown.AnnotationSelectedNode: f.Nodes[0]}
		}))
	}
	count = len(claims)
	f.waitForCount(claims, count/4)
	claims = append(claims, f.stopWhileAsked(c, f.class)...)
	f.check(c.SignalControllers(syscall.SIGCONT))
	f.waitForCount(claims, count/3)
	c.StopControllers()
	f.check(c.StartControllers())
	f.waitForCount(claims, count/2)
	first.halt()
	c.StopControllers()
	f.startBindingManager(prometheus.NewRegistry())
	f.check(c.StartControllers())
	f.waitForCount(claims, len(claims))
	f.expectNothingLost(claims)
	finished := counted(t, registry, "efs_stunnel_manager_bindings_finished_total")
	if finished == 0 {
		t.Error("the manager has bound no claim")
	}
	t.Logf("the first leader has bound %.0f of %d claims", finished, len(claims))
}

// startThrottled starts a control plane whose controller-manager makes as many requests as by default, and grants the
// rights of the component "fast-binding" under the policies of the component "admission".
func startThrottled(t *testing.T) (*cluster.Cluster, *fixture) {
	t.Helper()
	const throttled = 20 // requests a second
	programs, err := cluster.Programs()
	check(t, err)
	c, err := cluster.Start(t.Context(), programs, throttled)
	check(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	f := fixtureIn(testenv.New(t, c))
	for _, file := range []string{"base/manager-rbac.yaml", "components/fast-binding/rbac.yaml", "components/admission/volumes.yaml"} {
		f.grant(filepath.Join(kustomizations, file))
	}
	return c, f
}

// startBindingManager starts a manager with its own rights, which binds claims.
func (f *fixture) startBindingManager(registry *prometheus.Registry) *manager {
	f.Helper()
	administrator := f.Config
	f.Config = rest.CopyConfig(administrator)
	f.Config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + f.Namespace + ":" + wellknown.ManagerServiceAccount}
	defer func() { f.Config = administrator }()
	return f.startManager(nil, func(o *loops.Options) { o.FinishBinding, o.Metrics = true, registry })
}

const lateClaims = 5

// stopWhileAsked stops the controller-manager, and returns when the manager asks it about the volumes of claims that were
// created after that. They have the annotation of the component "fast-binding", so they are provisioned without it.
func (f *fixture) stopWhileAsked(c *cluster.Cluster, class string) (late []*corev1.PersistentVolumeClaim) {
	f.Helper()
	f.check(c.SignalControllers(syscall.SIGSTOP))
	for i := range lateClaims {
		late = append(late, f.NewClaim(fmt.Sprintf("claim-late-%d", i), class, func(claim *corev1.PersistentVolumeClaim) {
			claim.Annotations = f.annotated()
		}))
	}
	f.Eventually("the manager asks a question", f.questionIsOpen)
	return late
}

// annotated are the annotations of a claim that the component "fast-binding" has seen.
func (f *fixture) annotated() map[string]string {
	return map[string]string{wellknown.AnnotationStorageProvisioner: f.Provisioner, wellknown.AnnotationBetaStorageProvisioner: f.Provisioner}
}

func (f *fixture) questionIsOpen(ctx context.Context) error {
	found, err := f.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, volume := range found.Items {
		if strings.HasPrefix(volume.Name, wellknown.QuestionPrefix) {
			return nil
		}
	}
	return fmt.Errorf("none of %d volumes is a question", len(found.Items))
}

// counted returns a counter without labels.
func counted(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// waitForCount waits until so many claims are bound.
func (f *fixture) waitForCount(claims []*corev1.PersistentVolumeClaim, want int) {
	f.Helper()
	for range 1 + want/1000 { // each wait has a limit
		if f.boundOf(claims) >= want {
			return
		}
		f.Eventually(fmt.Sprintf("%d claims are bound, or 1000 more", want), f.boundAtLeast(claims, min(want, f.boundOf(claims)+1000)))
	}
}

func (f *fixture) boundAtLeast(claims []*corev1.PersistentVolumeClaim, want int) func(context.Context) error {
	return func(context.Context) error {
		if bound := f.boundOf(claims); bound < want { //nolint:contextcheck // the fixture has its own
			return fmt.Errorf("%d are", bound)
		}
		return nil
	}
}

func (f *fixture) boundOf(claims []*corev1.PersistentVolumeClaim) (bound int) {
	f.Helper()
	found, err := f.claims(f.Team).List(f.Context(), metav1.ListOptions{})
	f.check(err)
	for _, claim := range found.Items {
		if claim.Status.Phase == corev1.ClaimBound && strings.HasPrefix(claim.Name, "claim-") {
			bound++
		}
	}
	return min(bound, len(claims))
}

// expectNothingLost expects each claim to have the one volume that was made for it, and no event of the binder that
// says otherwise.
func (f *fixture) expectNothingLost(claims []*corev1.PersistentVolumeClaim) {
	f.Helper()
	owners := map[string]int{}
	for _, volume := range f.provisionedVolumes(f.Context()) {
		if volume.Status.Phase == corev1.VolumeBound {
			owners[volume.Spec.ClaimRef.Name]++
		}
	}
	for _, claim := range claims {
		if owners[claim.Name] != 1 {
			f.Errorf("claim %s has %d volumes", claim.Name, owners[claim.Name])
		}
	}
	events, err := f.Client.CoreV1().Events(f.Team).List(f.Context(), metav1.ListOptions{})
	f.check(err)
	for _, event := range events.Items {
		if event.Reason == "ClaimLost" || event.Reason == "ClaimMisbound" {
			f.check(errors.New(event.InvolvedObject.Name + ": " + event.Reason + ": " + event.Message))
		}
	}
}
