package volumes_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func topologies(key string, values ...string) []corev1.TopologySelectorTerm {
	return []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: values}}}}
}

func TestParseClassReadsTopologies(t *testing.T) {
	const zone, beta = corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone
	both := topologies(zone, "a", "b")
	both[0].MatchLabelExpressions = append(both[0].MatchLabelExpressions, topologies(beta, "b", "c")[0].MatchLabelExpressions...)
	none := topologies(zone, "a")
	none[0].MatchLabelExpressions = append(none[0].MatchLabelExpressions, topologies(beta, "b")[0].MatchLabelExpressions...)
	tests := map[string]struct {
		terms  []corev1.TopologySelectorTerm
		want   []string
		refuse string
	}{
		"none are everywhere":               {nil, nil, ""},
		"one term has its zones":            {topologies(zone, "a", "b"), []string{"a", "b"}, ""},
		"several terms add their zones":     {append(topologies(zone, "b"), topologies(beta, "a", "b")...), []string{"a", "b"}, ""},
		"all expressions of a term hold":    {both, []string{"b"}, ""},
		"expressions that exclude another":  {none, nil, `allowedTopologies allow no zone: write topology.kubernetes.io/zone with the zones that volumes may be in`},
		"a term without expressions is bad": {make([]corev1.TopologySelectorTerm, 1), nil, `allowedTopologies allow no zone: write topology.kubernetes.io/zone with the zones that volumes may be in`},
		"other keys are refused":            {topologies(corev1.LabelHostname, "n1"), nil, `allowedTopologies has the key "kubernetes.io/hostname": write topology.kubernetes.io/zone; zones are all that file systems differ in`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			class, err := volumes.ParseClass(newClass(nil, func(c *storagev1.StorageClass) { c.AllowedTopologies = tt.terms }))
			if tt.refuse != "" {
				wantRefusal(t, err, `storage class "efs": `+tt.refuse)
				return
			}
			if diff := cmp.Diff(tt.want, class.Zones); err != nil || diff != "" {
				t.Errorf("%v, zones mismatch (-want +got):\n%s", err, diff)
			}
		})
	}
}
