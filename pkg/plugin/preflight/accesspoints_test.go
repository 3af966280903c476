package preflight

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// TestClassesWithAccessPoints ask for AWS actions and ports, and no other class does.
func TestClassesWithAccessPoints(t *testing.T) {
	if results := suitable().accessPoints(); results != nil {
		t.Errorf("without such a class: %+v", results)
	}
	tests := map[string]struct {
		edit func(*Facts)
		want string // of the ports
	}{
		"up to the node ports":               {func(*Facts) {}, "from 20490 on, 9510 are free for --stunnel-port-count, 1000 are planned"},
		"up to the default node ports":       {func(f *Facts) { f.NodePorts = ports.Span{} }, "9510 are free"},
		"up to a pod's port":                 {func(f *Facts) { f.Pods = []*corev1.Pod{podWith("team", 21490)} }, "1000 are free"},
		"up to a service's port":             {func(f *Facts) { f.Services = []*corev1.Service{service(20500)} }, "10 are free"},
		"up to ephemeral ports of a node":    {func(f *Facts) { report(f, func(r *NodeReport) { r.PortRange = "25490 60999" }) }, "5000 are free"},
		"up to the default ephemeral ports":  {func(f *Facts) { f.NodePorts, f.Reports = ports.Span{First: 20000, Last: 20100}, nil }, "12278 are free"},
		"with the ports of our own pods":     {func(f *Facts) { f.Own, f.Pods = "efs-stunnel", []*corev1.Pod{podWith("efs-stunnel", 20500)} }, "9510 are free"},
		"with other ports from the first on": {func(f *Facts) { f.Ports = ports.Span{First: 29000, Last: 29999} }, "from 29000 on, 1000 are free"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := suitable()
			f.PointClasses = []string{"efs-sc"}
			tt.edit(f)
			results := f.accessPoints()
			if len(results) != 2 || results[0].Cause != AccessPointActions || !strings.Contains(results[1].Message, tt.want) {
				t.Fatalf("%+v, want %q", results, tt.want)
			}
			for _, action := range []string{"CreateAccessPoint", "DeleteAccessPoint", "TagResource"} {
				if !strings.Contains(results[0].Message, "elasticfilesystem:"+action) {
					t.Errorf("it does not name %s: %s", action, results[0].Message)
				}
			}
		})
	}
}
