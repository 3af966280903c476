//go:build integration

package integration_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestSharedVolumesNeedTheirComponentsRights and no others; without them claims are served.
func TestSharedVolumesNeedTheirComponentsRights(t *testing.T) {
	s := newSharing(t)
	s.install()
	s.grant("../../deploy/kustomize/base/manager-rbac.yaml")
	administrator := s.Config
	s.Config = rest.CopyConfig(administrator)
	s.Config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + s.Namespace + ":" + wellknown.ManagerServiceAccount}
	startManager(s.World, nil)
	s.Config = administrator
	object := s.shared("data", v1alpha1.SharedVolumeSpec{AccessPointID: s.accessPoint(1)})
	s.AwaitBound(s.NewClaim("claim", s.NewClass("efs", nil).Name))
	if is, err := s.get(t.Context(), object); err != nil || is.Status.Phase != "" {
		t.Errorf("without rights it is %+v, %v", is, err)
	}
	s.grant("../../deploy/kustomize/components/shared-volumes/rbac.yaml")
	s.Eventually("the manager reads SharedVolumes", func(ctx context.Context) error {
		is, err := s.get(ctx, object)
		if err == nil && is.Status.Phase == "" {
			err = errors.New("it has no status")
		}
		return err
	})
	s.liveThrough(object)
}

// grant applies a file of roles for the world's own service account.
func (s *sharing) grant(file string) {
	s.Helper()
	text, err := os.ReadFile(file)
	s.check(err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var header metav1.PartialObjectMetadata
		s.check(yaml.Unmarshal([]byte(document), &header))
		s.grantOne(header.Kind, []byte(document))
	}
}

func (s *sharing) grantOne(kind string, text []byte) {
	s.Helper()
	api, created := s.Client.RbacV1(), metav1.CreateOptions{}
	undo := func(remove func(context.Context, string, metav1.DeleteOptions) error, name string) {
		s.Cleanup(func() { s.check(remove(context.WithoutCancel(s.Context()), name, metav1.DeleteOptions{})) })
	}
	switch kind {
	case "ClusterRole":
		role := parse[rbacv1.ClusterRole](s, text)
		_, err := api.ClusterRoles().Create(s.Context(), role, created)
		s.check(err)
		undo(api.ClusterRoles().Delete, role.Name)
	case "ClusterRoleBinding":
		binding := parse[rbacv1.ClusterRoleBinding](s, text)
		binding.Subjects[0].Namespace = s.Namespace
		_, err := api.ClusterRoleBindings().Create(s.Context(), binding, created)
		s.check(err)
		undo(api.ClusterRoleBindings().Delete, binding.Name)
	case "Role":
		role := parse[rbacv1.Role](s, text)
		role.Namespace = s.Namespace
		_, err := api.Roles(s.Namespace).Create(s.Context(), role, created)
		s.check(err)
	case "RoleBinding":
		binding := parse[rbacv1.RoleBinding](s, text)
		binding.Namespace, binding.Subjects[0].Namespace = s.Namespace, s.Namespace
		_, err := api.RoleBindings(s.Namespace).Create(s.Context(), binding, created)
		s.check(err)
	default:
		s.Fatalf("%q in a file of rights", kind)
	}
}

func parse[T any](s *sharing, text []byte) *T {
	s.Helper()
	object := new(T)
	s.check(yaml.UnmarshalStrict(text, object))
	return object
}
