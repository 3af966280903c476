//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestSharedVolumesNeedTheRightsOfTheirComponent: and no others. Without them, claims are provisioned.
func TestSharedVolumesNeedTheRightsOfTheirComponent(t *testing.T) {
	f := newInstalledFixture(t)
	f.grant("../../deploy/kustomize/base/manager-rbac.yaml")
	administrator := f.Config
	f.Config = rest.CopyConfig(administrator)
	f.Config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + f.Namespace + ":" + wellknown.ManagerServiceAccount}
	f.startManager(nil)
	f.Config = administrator
	object := f.create(f.Team, "data", v1alpha1.SharedVolumeSpec{AccessPointID: f.createAccessPoint(1)})
	f.waitForBound(f.createClaim("claim"))
	if now, err := f.get(t.Context(), object); err != nil || now.Status.Phase != "" {
		t.Errorf("without rights it is %+v, %v", now, err)
	}
	f.grant("../../deploy/kustomize/components/shared-volumes/rbac.yaml")
	f.Eventually("the manager writes a status", func(ctx context.Context) error {
		now, err := f.get(ctx, object)
		if err == nil && now.Status.Phase == "" {
			err = errors.New("there is none")
		}
		return err
	})
	f.runSharedVolume(object)
}

// grant applies a file of roles, policies and bindings for the environment's own service account, and waits until the
// apiserver's authorizer has observed them.
func (f *fixture) grant(file string) {
	f.Helper()
	rules, bindings := map[string][]rbacv1.PolicyRule{}, []*rbacv1.RoleBinding{}
	text, err := os.ReadFile(file)
	f.check(err)
	const user = "system:serviceaccount:"
	own := strings.ReplaceAll(string(text), user+wellknown.Namespace+":", user+f.Namespace+":")
	for document := range strings.SplitSeq(own, "\n---\n") {
		object := &unstructured.Unstructured{}
		f.check(yaml.Unmarshal([]byte(document), &object.Object))
		if subjects, found, _ := unstructured.NestedSlice(object.Object, "subjects"); found {
			for _, subject := range subjects {
				if fields, ok := subject.(map[string]any); ok {
					fields["namespace"] = f.Namespace
				}
			}
			f.check(unstructured.SetNestedSlice(object.Object, subjects, "subjects"))
		}
		plural := strings.Replace(strings.ToLower(object.GetKind())+"s", "policys", "policies", 1)
		resource := f.Dynamic.Resource(object.GroupVersionKind().GroupVersion().WithResource(plural))
		var client dynamic.ResourceInterface = resource
		if strings.HasPrefix(object.GetKind(), "Role") {
			object.SetNamespace(f.Namespace)
			client = resource.Namespace(f.Namespace)
		}
		_, err = client.Create(f.Context(), object, metav1.CreateOptions{})
		f.check(err)
		f.Cleanup(func() {
			f.check(client.Delete(context.WithoutCancel(f.Context()), object.GetName(), metav1.DeleteOptions{}))
		})
		switch object.GetKind() {
		case "Role", "ClusterRole":
			role := &rbacv1.Role{}
			f.check(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role))
			rules[role.Kind+role.Name] = role.Rules
		case "RoleBinding", "ClusterRoleBinding":
			binding := &rbacv1.RoleBinding{}
			f.check(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding))
			bindings = append(bindings, binding)
		}
	}
	for _, binding := range bindings {
		f.waitForRules(binding, rules[binding.RoleRef.Kind+binding.RoleRef.Name])
	}
}

// waitForRules waits until the subjects of a binding, which may be a ClusterRoleBinding, may do what each rule says.
func (f *fixture) waitForRules(binding *rbacv1.RoleBinding, rules []rbacv1.PolicyRule) {
	f.Helper()
	for _, subject := range binding.Subjects {
		for _, rule := range rules {
			what := &authorizationv1.ResourceAttributes{
				Namespace: binding.Namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
			}
			what.Resource, what.Subresource, _ = strings.Cut(what.Resource, "/")
			if len(rule.ResourceNames) > 0 {
				what.Name = rule.ResourceNames[0]
			}
			user := "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
			f.Eventually(fmt.Sprintf("%s may %s %s", user, what.Verb, what.Resource), func(ctx context.Context) error {
				review, err := f.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: what},
				}, metav1.CreateOptions{})
				if err == nil && !review.Status.Allowed {
					err = errors.New(review.Status.Reason)
				}
				return err
			})
		}
	}
}
