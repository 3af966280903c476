package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// StartScheduler runs kube-scheduler for the pods that name it, until stop is called. Package kubelet schedules
// all others.
func (c *Cluster) StartScheduler(name string) (stop func(), err error) {
	config := filepath.Join(c.folder, "scheduler-"+name+".yaml")
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q}
leaderElection: {leaderElect: false}
profiles: [{schedulerName: %q}]
`, c.credentials.kubeconfig, name)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	p, err := startProcess(c.program("kube-scheduler", "--config="+config, "--secure-port=0"))
	if err != nil {
		return nil, err
	}
	return p.stop, nil
}
