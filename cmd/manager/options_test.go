package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/election"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program"
)

// outside is the environment of a process that is in no pod.
func outside(variables map[string]string) client.Environment {
	return client.Environment{
		Getenv:   func(key string) string { return variables[key] },
		ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist },
	}
}

func parse(args string, variables map[string]string) (options, error) {
	o, _, err := parseOptions(strings.Fields(args), outside(variables))
	return o, err
}

// image is the only setting that has no default.
const image = "--worker-image=registry/efs-stunnel:1 "

// defaults returns the options of the design's table.
func defaults() options {
	return options{
		Options: client.Options{Namespace: "efs-stunnel", HTTPAddress: ":8080", Log: program.Log{Format: "text"}},
		loops: loops.Settings{
			Settings:        decide.Settings{Provisioner: "gnuthought.com/efs-stunnel", Backoff: time.Minute, Threshold: 0},
			PollingInterval: 300 * time.Second,
			Range:           ports.Range{Base: 20490, Count: 1000, Reserved: []int{20488}, NodePorts: ports.Span{First: 30000, Last: 32767}},
			Jobs:            mountjobs.Settings{Namespace: "efs-stunnel", Image: "registry/efs-stunnel:1", Timeout: 10 * time.Minute, Linger: time.Minute},
			Batch:           512,
		},
		discovery: "aws", workerPort: 8443,
		qps: 200, burst: 300, leaderElect: true,
		lease: election.Options{
			Name: "efs-manager", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		},
	}
}

func wantOptions(t *testing.T, got, want options) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Errorf("options mismatch (-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	got, err := parse(image, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantOptions(t, got, defaults())
}

func TestEverySetting(t *testing.T) {
	tests := map[string]struct {
		flag  string
		env   string // NAME=value, "" where there is none
		wrong string // another good value for the variable, which the flag overrules
		want  func(*options)
	}{
		"discovery":   {"--discovery=none", "", "", func(o *options) { o.discovery = "none" }},
		"polling":     {"--efs-polling-interval=90s", "EFS_POLLING_INTERVAL=90", "600", func(o *options) { o.loops.PollingInterval = 90 * time.Second }},
		"region":      {"--aws-region=eu-west-1", "AWS_REGION=eu-west-1", "us-gov-east-1", func(o *options) { o.region = "eu-west-1" }},
		"VPC":         {"--vpc-id=vpc-0a1b", "", "", func(o *options) { o.loops.VPCID = "vpc-0a1b" }},
		"ids":         {"--file-system-ids=fs-1,fs-2", "", "", func(o *options) { o.loops.Filter = efs.Filter{IDs: []string{"fs-1", "fs-2"}} }},
		"tags":        {"--file-system-tags=team=a,env=x", "", "", func(o *options) { o.loops.Filter.Tags = map[string]string{"team": "a", "env": "x"} }},
		"aliases":     {"--file-system-aliases=fs-3=fs-2,fs-2=fs-1", "", "", func(o *options) { o.loops.Aliases = map[string][]string{"fs-3": {"fs-2"}, "fs-2": {"fs-1"}} }},
		"paths":       {"--shared-volume-paths=a,*", "", "", func(o *options) { o.loops.SharedVolumePaths = []string{"a", "*"} }},
		"port":        {"--base-stunnel-port=21000", "BASE_STUNNEL_PORT=21000", "22000", func(o *options) { o.loops.Range.Base = 21000 }},
		"port count":  {"--stunnel-port-count=10", "", "", func(o *options) { o.loops.Range.Count = 10 }},
		"node ports":  {"--node-port-range=20000-20999", "", "", func(o *options) { o.loops.Range.NodePorts = ports.Span{First: 20000, Last: 20999} }},
		"provisioner": {"--provisioner=example.com/efs", "STORAGE_PROVISIONER_NAME=example.com/efs", "other.com/efs", func(o *options) { o.loops.Provisioner = "example.com/efs" }},
		"backoff":     {"--provision-backoff-interval=2m", "PROVISION_BACKOFF_INTERVAL=120", "30", func(o *options) { o.loops.Backoff = 2 * time.Minute }},
		"threshold":   {"--failed-retry-threshold=3", "", "", func(o *options) { o.loops.Threshold = 3 }},
		"image":       {"--worker-image=other:2", "", "", func(o *options) { o.loops.Jobs.Image = "other:2" }},
		"pull policy": {"--worker-image-pull-policy=always", "", "", func(o *options) { o.pullPolicy, o.loops.Jobs.ImagePullPolicy = "Always", corev1.PullAlways }},
		"secrets":     {"--worker-image-pull-secrets=a,b.c", "", "", func(o *options) { o.loops.Jobs.ImagePullSecrets = []string{"a", "b.c"} }},
		"priority":    {"--worker-priority-class=high", "", "", func(o *options) { o.loops.Jobs.PriorityClassName = "high" }},
		"tolerations": {"--worker-tolerations=dedicated=storage:NoSchedule,gpu", "", "", func(o *options) {
			o.loops.Jobs.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: "Equal", Value: "storage", Effect: "NoSchedule"}, {Key: "gpu", Operator: "Exists"}}
		}},
		"node labels": {"--worker-node-selector=pool=storage,zone=a", "", "", func(o *options) { o.loops.Jobs.NodeSelector = map[string]string{"pool": "storage", "zone": "a"} }},
		"batch":       {"--mount-job-batch=1", "", "", func(o *options) { o.loops.Batch = 1 }},
		"timeout":     {"--mount-job-timeout=1h", "", "", func(o *options) { o.loops.Jobs.Timeout = time.Hour }},
		"namespace":   {"--namespace=storage", "NAMESPACE=storage", "other", func(o *options) { o.Namespace, o.loops.Jobs.Namespace = "storage", "storage" }},
		"kubeconfig":  {"--kubeconfig=/home/a/.kube/config", "", "", func(o *options) { o.Kubeconfig = "/home/a/.kube/config" }},
		"master":      {"--master=https://a:6443", "", "", func(o *options) { o.Master = "https://a:6443" }},
		"qps":         {"--kube-api-qps=0.5", "", "", func(o *options) { o.qps = 0.5 }},
		"burst":       {"--kube-api-burst=7", "", "", func(o *options) { o.burst = 7 }},
		"election":    {"--leader-elect=false", "", "", func(o *options) { o.leaderElect = false }},
		"lease":       {"--leader-elect-lease-duration=60s", "", "", func(o *options) { o.lease.LeaseDuration = time.Minute }},
		"renewal":     {"--leader-elect-renew-deadline=14", "", "", func(o *options) { o.lease.RenewDeadline = 14 * time.Second }},
		"retry":       {"--leader-elect-retry-period=500ms", "", "", func(o *options) { o.lease.RetryPeriod = 500 * time.Millisecond }},
		"lease name":  {"--leader-elect-resource-name=other", "", "", func(o *options) { o.lease.Name = "other" }},
		"address":     {"--http-address=127.0.0.1:9090", "", "", func(o *options) { o.HTTPAddress = "127.0.0.1:9090" }},
		"pprof":       {"--pprof", "", "", func(o *options) { o.Pprof = true }},
		"level":       {"--log-level=warning", "LOGGING_LEVEL=WARNING", "DEBUG", func(o *options) { o.Log.Level = slog.LevelWarn }},
		"format":      {"--log-format=JSON", "", "", func(o *options) { o.Log.Format = "json" }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := defaults()
			tt.want(&want)
			got, err := parse(image+tt.flag, nil)
			if err != nil {
				t.Fatal(err)
			}
			wantOptions(t, got, want)
			if tt.env == "" {
				return
			}
			variable, value, _ := strings.Cut(tt.env, "=")
			if got, err = parse(image, map[string]string{variable: value}); err != nil {
				t.Fatal(err)
			}
			wantOptions(t, got, want)
			if got, err = parse(image+tt.flag, map[string]string{variable: tt.wrong}); err != nil {
				t.Fatal(err)
			}
			wantOptions(t, got, want) // the flag wins
		})
	}
}

func TestImageFromTheEnvironment(t *testing.T) {
	got, err := parse("", map[string]string{"WORKER_IMAGE": "registry/efs-stunnel:1"})
	if err != nil {
		t.Fatal(err)
	}
	wantOptions(t, got, defaults())
}

func TestNamespaceOfThePod(t *testing.T) {
	inside := client.Environment{
		Getenv: func(string) string { return "" },
		ReadFile: func(path string) ([]byte, error) {
			return []byte(map[string]string{client.NamespaceFile: "openshift-efs-stunnel\n"}[path]), nil
		},
	}
	o, _, err := parseOptions(strings.Fields(image), inside)
	if err != nil || o.Namespace != "openshift-efs-stunnel" || o.loops.Jobs.Namespace != "openshift-efs-stunnel" {
		t.Errorf("got %q and %v", o.Namespace, err)
	}
	inside.Getenv = func(key string) string { return map[string]string{"NAMESPACE": "chosen"}[key] }
	if o, _, err = parseOptions(strings.Fields(image), inside); err != nil || o.Namespace != "chosen" {
		t.Errorf("got %q and %v, want what the variable says", o.Namespace, err)
	}
	inside.Getenv = func(string) string { return "" }
	inside.ReadFile = func(string) ([]byte, error) { return nil, errors.New("no permission") }
	if o, _, err = parseOptions(strings.Fields(image), inside); err != nil || o.Namespace != "efs-stunnel" {
		t.Errorf("got %q and %v, want the default", o.Namespace, err)
	}
}
