package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// measureBinding has a burst for each way in which claims are bound: by the cluster's binder, by the manager where that
// is late, and so with the annotations of the component fast-binding.
func (b *bench) measureBinding(ctx context.Context) error {
	finishing := b.ours(defaultLimits())
	finishing.finishes = true
	annotated := finishing
	annotated.policy = b.options.policy
	for _, c := range b.wanted(b.ours(defaultLimits()), finishing, annotated, b.peer(defaultLimits(), managerWorkers, b.options.claims)) {
		result, err := b.measureBurst(ctx, c)
		if err != nil {
			return err
		}
		b.results.Bindings = append(b.results.Bindings, result)
	}
	return nil
}

// bindingTarget is for a controller-manager with its default of 20 requests a second.
func bindingTarget(b burst) target {
	switch {
	case b.Annotated:
		return target{20, atLeast}
	case b.Finishes:
		return target{10, atLeast}
	}
	return target{}
}

func (r results) bindingRows() (rows []row) {
	var peer burst
	for _, b := range r.Bindings {
		if b.Contender == libraryName {
			peer = b
		}
	}
	for _, b := range r.Bindings {
		if b.Contender != managerName {
			continue
		}
		rows = append(rows,
			row{fmt.Sprintf("%d claims, %s: Bound", b.Claims, bindingName(b)), b.Create.Rate, perSecond, bindingTarget(b), peer.Create.Rate},
			row{"… API writes of the manager for each", b.Create.Writes, "writes", target{}, peer.Create.Writes},
			row{"… deleted", b.Delete.Rate, perSecond, target{}, peer.Delete.Rate})
	}
	return rows
}

func bindingName(b burst) string {
	switch {
	case b.Annotated:
		return "--finish-binding and annotated at creation"
	case b.Finishes:
		return "--finish-binding"
	}
	return "bound by the cluster"
}

// createPolicy creates the policy of the component fast-binding, and waits until the apiserver has observed it.
func (bed *testbed) createPolicy(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	first, second, _ := strings.Cut(string(text), "\n---\n")
	var policy admissionv1.MutatingAdmissionPolicy
	var binding admissionv1.MutatingAdmissionPolicyBinding
	if err := yaml.UnmarshalStrict([]byte(first), &policy); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	if err := yaml.UnmarshalStrict([]byte(second), &binding); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	api := bed.client.AdmissionregistrationV1()
	if _, err := api.MutatingAdmissionPolicies().Create(ctx, &policy, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := api.MutatingAdmissionPolicyBindings().Create(ctx, &binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, pollInterval, stepTimeout, true, bed.annotates)
}

func (bed *testbed) annotates(ctx context.Context) (bool, error) {
	name := class
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	claim.Spec.StorageClassName, claim.Spec.AccessModes = &name, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	claim.Spec.Resources.Requests = oneGibibyte()
	created, err := bed.client.CoreV1().PersistentVolumeClaims(team).Create(ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err == nil && created.Annotations[wellknown.AnnotationStorageProvisioner] != "", err
}
