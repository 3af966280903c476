package chart

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestValuesChangeObjects: each value that is no switch.
func TestValuesChangeObjects(t *testing.T) {
	chart := loaded(t)
	before := byHelm(t, chart, "")
	const deployment, daemonSet, readAhead, nfsServer = "Deployment efs-stunnel/efs-manager", "DaemonSet efs-stunnel/efs-stunnel", "DaemonSet efs-stunnel/efs-read-ahead", "StatefulSet efs-stunnel/efs-nfs-server"
	tests := map[string]struct{ values, object, want string }{
		"tag":            {"images: {worker: {digest: '', tag: v9}}", "Deployment efs-stunnel/efs-manager", `"value":"registry.example.com/storage/efs-worker:v9"`},
		"only a tag":     {"images: {worker: {tag: v9}}", "Deployment efs-stunnel/efs-manager", `"value":"registry.example.com/storage/efs-worker:v9"`},
		"tag and digest": {"images: {worker: {tag: v9, digest: 'sha256:1'}}", "Deployment efs-stunnel/efs-manager", `"value":"registry.example.com/storage/efs-worker@sha256:1"`},
		"repository":     {"images: {agent: {repository: mirror/agent}}", "DaemonSet efs-stunnel/efs-read-ahead", `"image":"mirror/agent@sha256:`},
		"pull secrets":   {"imagePullSecrets: [{name: pull}]", "ServiceAccount efs-stunnel/efs-worker", `"imagePullSecrets":[{"name":"pull"}]`},
		"manager's args": {"manager: {args: [--log-level=DEBUG]}", "Deployment efs-stunnel/efs-manager", `"--usage-interval=24h","--log-level=DEBUG"]`},
		"manager's env":  {"manager: {env: [{name: AWS_REGION, value: eu-west-1}]}", "Deployment efs-stunnel/efs-manager", `{"name":"AWS_REGION","value":"eu-west-1"}]`},
		"selector":       {"manager: {nodeSelector: {a: b}}", "Deployment efs-stunnel/efs-manager", `"nodeSelector":{"a":"b","kubernetes.io/os":"linux"}`},
		"tolerations":    {"manager: {tolerations: []}", "Deployment efs-stunnel/efs-manager", `"tolerations":[]`},
		"replicas":       {"manager: {replicas: 3}", "Deployment efs-stunnel/efs-manager", `"replicas":3`},
		"agent's args":   {"agent: {args: [--log-level=DEBUG]}", "DaemonSet efs-stunnel/efs-stunnel", `"args":["--log-level=DEBUG"]`},
		"agent's env":    {"agent: {env: [{name: A, value: b}]}", "DaemonSet efs-stunnel/efs-stunnel", `{"name":"A","value":"b"}]`},
		"supervisor's args": {
			"supervisor: {args: [--tunnel-idle=0]}",
			"DaemonSet efs-stunnel/efs-stunnel", `"args":["supervise","--tunnel-idle=0"]`,
		},
		"supervisor's env": {
			"supervisor: {env: [{name: A, value: b}]}",
			"DaemonSet efs-stunnel/efs-stunnel", `"args":["supervise"],"env":[{"name":"A","value":"b"}]`,
		},
		"supervisor's env beside a component's": {
			"components: {fips: true}\nsupervisor: {env: [{name: A, value: b}]}",
			"DaemonSet efs-stunnel/efs-stunnel", `"env":[{"name":"EFS_FIPS","value":"true"},{"name":"A","value":"b"}]`,
		},
		"resources":      {"supervisor: {resources: {requests: {cpu: '2'}}}", "DaemonSet efs-stunnel/efs-stunnel", `"cpu":"2"`},
		"agent's memory": {"agent: {resources: {limits: {memory: 1Gi}}}", "DaemonSet efs-stunnel/efs-stunnel", `"memory":"1Gi"`},
		"agent's role":   {"agent: {serviceAccount: {annotations: {a: b}}}", "ServiceAccount efs-stunnel/efs-stunnel", `"annotations":{"a":"b"}`},
		"manager's CPU":  {"manager: {resources: {requests: {cpu: '3'}}}", "Deployment efs-stunnel/efs-manager", `"cpu":"3"`},
		"default class":  {"storageClasses: [{name: efs-stunnel, default: true}]", "StorageClass <nil>/efs-stunnel", `"is-default-class":"true"`},
		"policy":         {"storageClasses: [{name: efs-stunnel, reclaimPolicy: Retain}]", "StorageClass <nil>/efs-stunnel", `"reclaimPolicy":"Retain"`},
		"binding mode":   {"storageClasses: [{name: a}, {name: b, volumeBindingMode: WaitForFirstConsumer}]", "StorageClass <nil>/b", `"volumeBindingMode":"WaitForFirstConsumer"`},
		"second class":   {"storageClasses: [{name: a}, {name: b}]", "StorageClass <nil>/a", `"provisioner":"gnuthought.com/efs-stunnel","reclaimPolicy":"Delete","volumeBindingMode":"Immediate"}`},
		"no expansion":   {"storageClasses: [{name: a, allowVolumeExpansion: false}]", "StorageClass <nil>/a", `"allowVolumeExpansion":false`},
		"mount options":  {"storageClasses: [{name: a, mountOptions: [noatime]}]", "StorageClass <nil>/a", `"mountOptions":["noatime"]`},
		"class's labels": {"storageClasses: [{name: a, labels: {team: x}, annotations: {note: z}}]", "StorageClass <nil>/a", `"annotations":{"note":"z"},"labels":{"app.kubernetes.io/part-of":"efs-stunnel","team":"x"}`},
		"parameters":     {"storageClasses: [{name: efs-stunnel, parameters: {base_path: /x}}]", "StorageClass <nil>/efs-stunnel", `"parameters":{"base_path":"/x"}`},

		"labels":          {"labels: {team: x, app.kubernetes.io/part-of: z}", "Service efs-stunnel/efs-manager-metrics", `"app.kubernetes.io/part-of":"efs-stunnel","efs-stunnel.gnuthought.com/program":"manager","team":"x"`},
		"pod labels":      {"manager: {podLabels: {team: x, app.kubernetes.io/name: z}}", deployment, `"app.kubernetes.io/name":"efs-stunnel","efs-stunnel.gnuthought.com/program":"manager","team":"x"`},
		"pod annotations": {"manager: {podAnnotations: {a: b}}", deployment, `"annotations":{"a":"b"}`},
		"agents' labels":  {"agent: {podLabels: {team: x}}", daemonSet, `"efs-stunnel.gnuthought.com/program":"node-agent","team":"x"`},
		"agents' notes":   {"agent: {podAnnotations: {a: b}}", daemonSet, `"annotations":{"a":"b","cluster-autoscaler.kubernetes.io/enable-ds-eviction":"false"`},
		"priority":        {"manager: {priorityClassName: mine}", deployment, `"priorityClassName":"mine"`},
		"agents' class":   {"agent: {priorityClassName: mine}", daemonSet, `"priorityClassName":"mine"`},
		"agents' nodes":   {"agent: {nodeSelector: {a: b}}", daemonSet, `"nodeSelector":{"a":"b","kubernetes.io/os":"linux"}`},
		"agents' taints":  {"agent: {tolerations: [{key: a}]}", daemonSet, `"tolerations":[{"key":"a"}]`},
		"read-ahead":      {"agent: {tolerations: [{key: a}], nodeSelector: {a: b}, priorityClassName: mine}", readAhead, `"tolerations":[{"key":"a"}]`},
		"affinity":        {"manager: {affinity: null}", deployment, `"affinity":null`},
		"spread":          {"manager: {topologySpreadConstraints: [{maxSkew: 1}]}", deployment, `"topologySpreadConstraints":[{"maxSkew":1}]`},
		"surge":           {"agent: {updateStrategy: {rollingUpdate: {maxSurge: 5%}}}", daemonSet, `"rollingUpdate":{"maxSurge":"5%","maxUnavailable":0}`},
		"volumes":         {"manager: {extraVolumes: [{name: ca}], extraVolumeMounts: [{name: ca, mountPath: /ca}]}", deployment, `"volumes":[{"name":"ca"}]`},
		"mounts":          {"manager: {extraVolumeMounts: [{name: ca, mountPath: /ca}]}", deployment, `"volumeMounts":[{"mountPath":"/ca","name":"ca"}]`},
		"agents' volumes": {"agent: {extraVolumes: [{name: ca}]}", daemonSet, `,{"name":"ca"}]`},
		"agent's mounts":  {"agent: {extraVolumeMounts: [{name: ca, mountPath: /ca}]}", daemonSet, `,{"mountPath":"/ca","name":"ca"}]`},
		"stunnel's":       {"supervisor: {extraVolumeMounts: [{name: ca, mountPath: /ca}]}", daemonSet, `[{"mountPath":"/tmp","name":"tunnels"},{"mountPath":"/ca","name":"ca"}]`},
		"pull policy":     {"imagePullPolicy: Always", deployment, `"--worker-image-pull-policy=Always"],`},
		"pull":            {"imagePullPolicy: Always", readAhead, `"imagePullPolicy":"Always"`},
		"pull agents":     {"imagePullPolicy: Always", daemonSet, `"imagePullPolicy":"Always"`},
		"Jobs' priority":  {"worker: {priorityClassName: mine}", deployment, `"--worker-priority-class=mine"`},
		"Jobs' nodes":     {"worker: {nodeSelector: {a: b, c: d}}", deployment, `"--worker-node-selector=a=b,c=d"`},
		"Jobs' taints":    {"worker: {tolerations: [{key: a, operator: Exists}, {key: b, value: c, effect: NoSchedule}]}", deployment, `"--worker-tolerations=a,b=c:NoSchedule"`},
		"surveys":         {"usageInterval: 6h", deployment, `"--usage-interval=6h"`},
		"account":         {"manager: {serviceAccount: {name: mine}}", deployment, `"serviceAccountName":"mine"`},
		"account's role":  {"manager: {serviceAccount: {name: mine}}", "ClusterRoleBinding <nil>/efs-stunnel-manager", `{"kind":"ServiceAccount","name":"mine","namespace":"efs-stunnel"}`},
		"account's right": {"manager: {serviceAccount: {name: mine}}", "ValidatingAdmissionPolicy <nil>/efs-stunnel-jobs", `'system:serviceaccount:efs-stunnel:mine'`},
		"agents' account": {"agent: {serviceAccount: {name: mine}}", "ValidatingAdmissionPolicy <nil>/efs-stunnel-agent-status", `'system:serviceaccount:efs-stunnel:mine'`},
		"Prometheus":      {"components: {monitoring: true}\nmonitoring: {labels: {release: p}}", "ServiceMonitor efs-stunnel/efs-stunnel", `"release":"p"`},
		"rules":           {"components: {monitoring: true}\nmonitoring: {labels: {release: p}}", "PrometheusRule efs-stunnel/efs-stunnel", `"release":"p"`},
		"interval":        {"components: {monitoring: true}\nmonitoring: {interval: 15s}", "ServiceMonitor efs-stunnel/efs-manager", `"interval":"15s"`},
		"server's watch":  {"components: {monitoring: true}\nmonitoring: {labels: {release: p}}", "PodMonitor efs-stunnel/efs-nfs-server", `"release":"p"`},
		"server's scrape": {"components: {monitoring: true}\nmonitoring: {interval: 15s}", "PodMonitor efs-stunnel/efs-nfs-server", `"interval":"15s"`},
		"server's nodes":  {"components: {nfsServer: true}\nnfsServer: {nodeSelector: {a: b}}", nfsServer, `"nodeSelector":{"a":"b","kubernetes.io/os":"linux"}`},
		"server's taints": {"components: {nfsServer: true}\nnfsServer: {tolerations: [{key: a}]}", nfsServer, `"tolerations":[{"key":"a"}]`},
		"server's place":  {"components: {nfsServer: true}\nnfsServer: {affinity: {nodeAffinity: {}}, priorityClassName: mine}", nfsServer, `"affinity":{"nodeAffinity":{}}`},
		"renewals' nodes": {"components: {nfsServer: true}\nmanager: {nodeSelector: {a: b}}", "CronJob efs-stunnel/efs-nfs-certificates", `"nodeSelector":{"a":"b","kubernetes.io/os":"linux"}`},
		"first's taints":  {"components: {nfsServer: true}\nmanager: {tolerations: [{key: a}]}", "Job efs-stunnel/efs-nfs-certificates", `"tolerations":[{"key":"a"}]`},
		"server's disk":   {"components: {nfsServer: true}\nnfsServer: {size: 1Ti, storageClassName: fast}", nfsServer, `"requests":{"storage":"1Ti"}},"storageClassName":"fast"`},
		"server's flags":  {"components: {nfsServer: true}\nnfsServer: {args: [--shared-file-system]}", nfsServer, `"args":["--shared-file-system"]`},
		"server's quotas": {"components: {nfsServer: true}\nnfsServer: {quotas: true, args: [--log-level=DEBUG]}", nfsServer, `"args":["--quotas","--log-level=DEBUG"]`},
		"server's rights": {"components: {nfsServer: true}\nnfsServer: {quotas: true}", nfsServer, `"SETUID","SYS_ADMIN"]`},
		"server's check":  {"components: {nfsServer: true}\nnfsServer: {quotas: true}", nfsServer, `"name":"quotas"`},
		"server's memory": {"components: {nfsServer: true}\nnfsServer: {resources: {limits: {memory: 9Gi}}}", nfsServer, `"memory":"9Gi"`},
		"server's pull":   {"components: {nfsServer: true}\nimagePullSecrets: [{name: pull}]", nfsServer, `"imagePullSecrets":[{"name":"pull"}]`},
		"pull renewals":   {"components: {nfsServer: true}\nimagePullPolicy: Always", "CronJob efs-stunnel/efs-nfs-certificates", `"imagePullPolicy":"Always"`},
		"runbooks":        {"components: {monitoring: true}\nmonitoring: {runbookURL: 'https://example.com/alerts'}", "PrometheusRule efs-stunnel/efs-stunnel", `"runbook_url":"https://example.com/alerts#efstunneldown"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			after := byHelm(t, chart, tt.values)
			text, err := json.Marshal(after[tt.object])
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(string(text), "storageclass.kubernetes.io/", "")
			if !strings.Contains(got, tt.want) {
				t.Errorf("%s lacks %s:\n%s", tt.object, tt.want, got)
			}
			if cmp.Equal(before[tt.object], after[tt.object]) {
				t.Errorf("%s is as before", tt.object)
			}
		})
	}
	for value, object := range map[string]string{
		"storageClasses: []":                         "StorageClass <nil>/efs-stunnel",
		"manager: {serviceAccount: {create: false}}": "ServiceAccount efs-stunnel/efs-manager",
		"agent: {serviceAccount: {create: false}}":   "ServiceAccount efs-stunnel/efs-stunnel",
	} {
		after := byHelm(t, chart, value)
		want := maps.Clone(before)
		delete(want, object)
		if diff := cmp.Diff(want, after); diff != "" || len(want) == len(before) {
			t.Errorf("%s: objects mismatch (-want +got):\n%s", value, diff)
		}
	}
}

// TestPortsAreThoseOfManagerAndPolicies: with another range, these three objects differ from kustomize's. A
// number has the first type in a file of values, and the second on the command line.
func TestPortsAreThoseOfManagerAndPolicies(t *testing.T) {
	s := spec(t)
	chart := loaded(t)
	rendered, err := s.Source.Base(s.Images, "admission")
	plain := byKustomize(t, rendered, err)
	ports := func(base, count any) map[string]any { return map[string]any{"base": base, "count": count} }
	for name, tt := range map[string]struct {
		ports       map[string]any
		first, last string
		flags       string
	}{
		"file":         {ports(float64(24000), float64(2000)), "24000", "25999", `"--base-stunnel-port=24000","--stunnel-port-count=2000"`},
		"command line": {ports(int64(24000), int64(2000)), "24000", "25999", `"--base-stunnel-port=24000","--stunnel-port-count=2000"`},
		"base":         {map[string]any{"base": int64(24000)}, "24000", "24999", `"--base-stunnel-port=24000"`},
		"count":        {map[string]any{"count": float64(2000)}, "20490", "22489", `"--stunnel-port-count=2000"`},
	} {
		t.Run(name, func(t *testing.T) {
			want := maps.Clone(plain)
			for _, policy := range []string{"efs-stunnel-host-ports", "efs-stunnel-node-ports"} {
				key := "ValidatingAdmissionPolicy <nil>/" + policy
				want[key] = replaced(t, want[key], `"20490"`, `"`+tt.first+`"`, `"21489"`, `"`+tt.last+`"`)
			}
			const flag = `"--worker-priority-class=system-cluster-critical"`
			key := "Deployment efs-stunnel/efs-manager"
			want[key] = replaced(t, want[key], flag, flag+","+tt.flags)

			var set map[string]any
			if err := yaml.Unmarshal([]byte(off+switches("admission")), &set); err != nil {
				t.Fatal(err)
			}
			set["ports"] = tt.ports
			if diff := cmp.Diff(want, byHelmWith(t, chart, set)); diff != "" {
				t.Errorf("objects mismatch (-want +helm):\n%s", diff)
			}
		})
	}
}

// replaced returns the object with other texts.
func replaced(t *testing.T, object any, oldnew ...string) any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var changed any
	if err := json.Unmarshal([]byte(strings.NewReplacer(oldnew...).Replace(string(text))), &changed); err != nil {
		t.Fatal(err)
	}
	return changed
}
