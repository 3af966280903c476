package chart

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"sigs.k8s.io/yaml"
)

// TestHelmAcceptsKnownValues: byHelm fails if Helm refuses the values, or cannot render the objects.
func TestHelmAcceptsKnownValues(t *testing.T) {
	chart := loaded(t)
	for name, values := range map[string]string{
		"defaults":        "",
		"parent chart":    "global: {a: b}\nenabled: true",
		"component":       "components: {networkPolicy: true}",
		"users' keys":     "manager: {serviceAccount: {annotations: {a: b}}, nodeSelector: {a: b}, resources: {claims: []}}\nagent: {affinity: {podAffinity: {}}, resources: {claims: []}}",
		"users' items":    "imagePullSecrets: [{name: a}]\nmanager: {args: [--a], env: [{name: A}], tolerations: [{key: a}]}\nagent: {env: [{name: A}]}\nsupervisor: {args: [--a]}",
		"parameters":      "storageClasses: [{name: a, parameters: {uid: '5'}}]",
		"no tags":         "fileSystemTags: null",
		"no digest":       "images: {worker: {digest: null, tag: v9}}",
		"no lists":        "imagePullSecrets: null\nstorageClasses: null\nworker: {tolerations: null, nodeSelector: null, priorityClassName: null}\nlabels: null\nmanager: {args: null, env: null, tolerations: null}\nagent: {args: null, env: null}\nsupervisor: {args: null, env: null}",
		"no objects":      "manager: {nodeSelector: null, resources: null}\nagent: {affinity: null, resources: null, updateStrategy: null, podLabels: null}\nstorageClasses: [{name: a, parameters: null, reclaimPolicy: null}]",
		"null for false":  "createNamespace: null\ncomponents: {admission: null, fips: null, monitoring: null, startupTaint: null}",
		"removed keys":    "manager: {nodeSelector: {kubernetes.io/os: null}}\nagent: {nodeSelector: {kubernetes.io/os: null, a: b}}",
		"server's":        "nfsServer: {resources: {limits: {cpu: 2, ephemeral-storage: 1Gi}, claims: []}}",
		"server's none":   "nfsServer: {resources: null, args: null, size: 1Ti}",
		"a range's first": "ports: {base: 24000}",
	} {
		t.Run(name, func(t *testing.T) { byHelm(t, chart, values) })
	}
}

// TestHelmRefusesUnknownValues, and says which.
func TestHelmRefusesUnknownValues(t *testing.T) {
	chart := loaded(t)
	for values, want := range map[string]string{
		"components: {network-policy: true}":                   "'/components': additional properties 'network-policy' not allowed",
		"imagePullSecret: [{name: a}]":                         "'': additional properties 'imagePullSecret' not allowed",
		"manager: {extraArgs: [--a]}":                          "'/manager': additional properties 'extraArgs' not allowed",
		"supervisor: {affinity: {}}":                           "'/supervisor': additional properties 'affinity' not allowed",
		"images: {worker: {repo: a}}":                          "'/images/worker': additional properties 'repo' not allowed",
		"images: {mountjob: {tag: a}}":                         "'/images': additional properties 'mountjob' not allowed",
		"storageClasses: [{name: a, options: []}]":             "'/storageClasses/0': additional properties 'options' not allowed",
		"storageClasses: [{reclaimPolicy: Retain}]":            "'/storageClasses/0': missing property 'name'",
		"storageClass: {create: false}":                        "'': additional properties 'storageClass' not allowed",
		"ports: {first: 24000}":                                "'/ports': additional properties 'first' not allowed",
		"components: {fips: 'yes'}":                            "'/components/fips': got string",
		"manager: {args: --log-level=DEBUG}":                   "'/manager/args': got string",
		"manager: {replicas: '2'}":                             "'/manager/replicas': got string",
		"images: {worker: {digest: '', tag: 20261126}}":        "'/images/worker/tag': got number",
		"ports: {base: 0}":                                     "'/ports/base': minimum: got 0",
		"ports: {base: 70000}":                                 "'/ports/base': maximum: got 70,000",
		"ports: {base: 24000.5}":                               "'/ports/base': got number, want integer",
		"ports: {count: 0}":                                    "'/ports/count': minimum: got 0",
		"ports: {base: null}":                                  "'/ports': missing property 'base'",
		"storageClasses: [{name: a, parameters: {gid: 1000}}]": "'/storageClasses/0/parameters/gid': got number",
		"labels: {billed: true}":                               "'/labels/billed': got boolean",
		"monitoring: {labels: {release: 1}}":                   "'/monitoring/labels/release': got number",
		"agent: {podAnnotations: {sidecar: false}}":            "'/agent/podAnnotations/sidecar': got boolean",
		"worker: {nodeSelector: {storage: true}}":              "'/worker/nodeSelector/storage': got boolean",
		"manager: {serviceAccount: {annotations: {a: 1}}}":     "'/manager/serviceAccount/annotations/a': got number",
		"components: null":                                     "'': missing property 'components'",
	} {
		t.Run(values, func(t *testing.T) {
			set := map[string]any{}
			if err := yaml.Unmarshal([]byte(values), &set); err != nil {
				t.Fatal(err)
			}
			_, err := util.ToRenderValues(chart, set, common.ReleaseOptions{Name: "efs", Namespace: "default"}, common.DefaultCapabilities)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want one that contains %s", err, want)
			}
		})
	}
}
