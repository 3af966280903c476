package volumes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// setZones reads allowedTopologies: one of the terms must hold, with all of its expressions.
func (c *Class) setZones(terms []corev1.TopologySelectorTerm) (findings []string) {
	if len(terms) == 0 {
		return nil
	}
	c.Zones = []string{} // not nil, which would allow all zones
	for _, term := range terms {
		zones, findingsOfTerm := termZones(term)
		c.Zones = append(c.Zones, zones...)
		findings = append(findings, findingsOfTerm...)
	}
	slices.Sort(c.Zones)
	c.Zones = slices.Compact(c.Zones)
	if len(c.Zones) == 0 && len(findings) == 0 {
		return []string{"allowedTopologies allow no zone: write " + corev1.LabelTopologyZone + " with the zones that volumes may be in"}
	}
	return findings
}

// termZones returns the zones that all expressions of a term name.
func termZones(term corev1.TopologySelectorTerm) (zones, findings []string) {
	for i, expression := range term.MatchLabelExpressions {
		if expression.Key != corev1.LabelTopologyZone && expression.Key != corev1.LabelFailureDomainBetaZone {
			findings = append(findings, fmt.Sprintf("allowedTopologies has the key %s: write %s; zones are all that file systems differ in",
				quoted(expression.Key), corev1.LabelTopologyZone))
			continue
		}
		if i == 0 {
			zones = slices.Clone(expression.Values)
			continue
		}
		zones = slices.DeleteFunc(zones, func(zone string) bool { return !slices.Contains(expression.Values, zone) })
	}
	return zones, findings
}

// inZones shows a set of zones in a message.
func inZones(zones []string) string {
	if len(zones) == 1 {
		return "zone " + quoted(zones[0])
	}
	return "zones " + quoted(strings.Join(zones, ", "))
}
