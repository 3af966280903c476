package main

import (
	"strings"
	"testing"
)

const (
	wantDuration = "want a duration such as 90s or 5m, or a number of seconds, from "
	wantObject   = `want the name of an object: 1 to 253 lower-case letters, digits, "-" or "."`
	wantNS       = `want the name of a namespace: 1 to 63 lower-case letters, digits or "-"`
	wantID       = `is no file system id: want fs- and 1 to 40 lower-case letters or digits`
	wantDomain   = `want a domain, "/", and 1 to 63 letters, digits, "-", "_" or ".", as gnuthought.com/efs-stunnel`
	wantOwn      = `want a name that is not below kubernetes.io, or the cluster takes its volumes for its own`
	wantInt      = "want a whole number from "
	wantLevel    = "want DEBUG, INFO, WARNING, ERROR or CRITICAL"
	wantAddress  = "want host:port or :port, with a port up to 65535"
	wantRegion   = "want the name of an AWS region, as us-east-1"
	wantRate     = "want a number above 0, up to 1000000"
	wantPolicy   = "want Always or IfNotPresent or Never"
	wantSpan     = "want first-last, both from 1 to 65535, as 30000-32767"
)

func TestBadValuesAreOneLine(t *testing.T) {
	tests := []struct {
		flag string
		want string // after the flag and its value
	}{
		{"--discovery=gcp", "want aws or none"},
		{"--efs-polling-interval=0", wantDuration + "1s to 24h"},
		{"--efs-polling-interval=often", wantDuration + "1s to 24h"},
		{"--aws-region=Ireland", wantRegion},
		{"--aws-region=us-east-1.evil.com", wantRegion},
		{"--vpc-id=10.0.0.0/16", "want vpc- and 1 to 40 lower-case letters or digits"},
		{"--file-system-ids=fs-1,nfs", `"nfs" ` + wantID},
		{"--file-system-tags=team", `"team" is no tag: want key=value`},
		{"--file-system-tags=a=1,a=2", `"2" is the second value of tag "a": want one, because all tags must match`},
		{"--file-system-aliases=fs-1", `"fs-1" is no alias: want fs-new=fs-old`},
		{"--file-system-aliases=x=fs-1", `"x" ` + wantID},
		{"--file-system-aliases=fs-1=x", `"x" ` + wantID},
		{"--file-system-aliases=fs-1=fs-1", `"fs-1=fs-1": want two file systems, as none is a copy of itself`},
		{"--file-system-aliases=fs-1=fs-2,fs-1=fs-3", `"fs-1=fs-3" is the second alias of fs-1: want one, as it is the copy of one file system`},
		{"--base-stunnel-port=80", wantInt + "1024 to 65535"},
		{"--base-stunnel-port=nfs", wantInt + "1024 to 65535"},
		{"--stunnel-port-count=0", wantInt + "1 to 65535"},
		{"--node-port-range=30000", wantSpan},
		{"--node-port-range=0-100", wantSpan},
		{"--node-port-range=32767-30000", wantSpan},
		{"--node-port-range=30000-65536", wantSpan},
		{"--node-port-range=http-https", wantSpan},
		{"--provisioner=efs", wantDomain},
		{"--provisioner=a/b/c", wantDomain},
		{"--provisioner=kubernetes.io/aws-efs", wantOwn},
		{"--provisioner=storage.kubernetes.io/aws-efs", wantOwn},
		{"--provision-backoff-interval=2h", wantDuration + "1s to 1h"},
		{"--failed-retry-threshold=-1", wantInt + "0 to 2147483647"},
		{"--worker-image=", "want the name of an image, without spaces"},
		{"--worker-image-pull-policy=Sometimes", wantPolicy},
		{"--worker-image-pull-secrets=a,B", wantObject},
		{"--worker-priority-class=High", wantObject},
		{"--worker-tolerations=dedicated:Never", `"dedicated:Never": want an effect of ["NoSchedule" "PreferNoSchedule" "NoExecute"], or none for all`},
		{"--worker-tolerations==storage", `"=storage": want a taint such as dedicated=storage:NoSchedule`},
		{"--worker-node-selector=pool", "want labels such as pool=storage, with commas between"},
		{"--worker-node-selector=pool=a%b", "want labels such as pool=storage, with commas between"},
		{"--mount-job-batch=0", wantInt + "1 to 2147483647"},
		{"--mount-job-timeout=30s", wantDuration + "1m to 24h"},
		{"--shared-volume-paths=a,B", `want names of namespaces, with commas between, or *`},
		{"--shared-volume-paths=team-*", `want names of namespaces, with commas between, or *`},
		{"--namespace=a.b", wantNS},
		{"--kube-api-qps=0", wantRate},
		{"--kube-api-qps=-1", wantRate},
		{"--kube-api-burst=0", wantInt + "1 to 2147483647"},
		{"--leader-elect=perhaps", "want true or false"},
		{"--leader-elect-lease-duration=0.5", wantDuration + "1s to 1h"},
		{"--leader-elect-lease-duration=10s", "want more than --leader-elect-renew-deadline, which is 10s"},
		{"--leader-elect-renew-deadline=2.4s", "want more than 1.2 times --leader-elect-retry-period, which is 2s"},
		{"--leader-elect-renew-deadline=0", wantDuration + "1ms to 1h"},
		{"--leader-elect-retry-period=0", wantDuration + "1ms to 1h"},
		{"--leader-elect-resource-name=a_b", wantObject},
		{"--http-address=8080", wantAddress},
		{"--http-address=:http", wantAddress},
		{"--http-address=:70000", wantAddress},
		{"--http-address=", wantAddress},
		{"--log-level=LOUD", wantLevel},
		{"--log-format=xml", "want text or json"},
	}
	for _, tt := range tests {
		t.Run(tt.flag, func(t *testing.T) {
			flag, value, _ := strings.Cut(tt.flag, "=")
			_, err := parse(image+tt.flag, nil)
			if want := flag + ` "` + value + `": ` + tt.want; err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

func TestBadSettingsNameTheirSource(t *testing.T) {
	tests := map[string]struct {
		args string
		env  map[string]string
		want string
	}{
		"a variable":             {image, map[string]string{"EFS_POLLING_INTERVAL": "5 minutes"}, `EFS_POLLING_INTERVAL "5 minutes": ` + wantDuration + "1s to 24h"},
		"a variable's port":      {image, map[string]string{"BASE_STUNNEL_PORT": "65535"}, `BASE_STUNNEL_PORT "65535": 1000 ports from 65535 on: want 1 or more, all of them from 1024 to 65535`},
		"a flag's port":          {image + "--base-stunnel-port=65000", nil, `--base-stunnel-port "65000": 1000 ports from 65000 on: want 1 or more, all of them from 1024 to 65535`},
		"NodePorts only":         {image + "--base-stunnel-port=30000", nil, `--base-stunnel-port "30000": ports 30000 to 30999: want some that are neither 2049 (NFS), 20488 (the node agent), 30000-32767 (NodePort services) nor reserved`},
		"a range of NodePorts":   {image + "--node-port-range=20000-22767", nil, `--base-stunnel-port "20490": ports 20490 to 21489: want some that are neither 2049 (NFS), 20488 (the node agent), 20000-22767 (NodePort services) nor reserved`},
		"the agent's port":       {image + "--base-stunnel-port=20488 --stunnel-port-count=1", nil, `--base-stunnel-port "20488": ports 20488 to 20488: want some that are neither 2049 (NFS), 20488 (the node agent), 30000-32767 (NodePort services) nor reserved`},
		"a variable's name":      {image, map[string]string{"STORAGE_PROVISIONER_NAME": "kubernetes.io/efs"}, `STORAGE_PROVISIONER_NAME "kubernetes.io/efs": ` + wantOwn},
		"a variable's namespace": {image, map[string]string{"NAMESPACE": "A"}, `NAMESPACE "A": ` + wantNS},
		"a variable's level":     {image, map[string]string{"LOGGING_LEVEL": "10"}, `LOGGING_LEVEL "10": ` + wantLevel},
		"a variable's image":     {"", map[string]string{"WORKER_IMAGE": "a b"}, `WORKER_IMAGE "a b": want the name of an image, without spaces`},
		"no image":               {"", nil, "--worker-image or WORKER_IMAGE is missing: want the image that holds mountjob"},
		"an unknown flag":        {image + "--workers=4", nil, "--workers: there is no such flag; see --help"},
		"one dash":               {"-provisioner=example.com/nfs -kubeconfig=/root/.kube/config", nil, "-provisioner: flags begin with two dashes; write --provisioner"},
		"one dash before an h":   {image + "-http-address=:8080", nil, "-http-address: flags begin with two dashes; write --http-address"},
		"a stray argument":       {image + "start", nil, `argument "start": manager takes flags only`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(tt.args, tt.env); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}
