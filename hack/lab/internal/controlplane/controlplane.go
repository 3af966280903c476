// Package controlplane describes the processes of the control plane, which are etcd, the apiserver, the
// controller-manager and the scheduler, and makes their certificates and kubeconfigs.
package controlplane

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/pki"
	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// The parts' names.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// ClusterCA is the authority that the apiserver, the nodes and all users share.
const ClusterCA = "cluster-ca"

// serviceAccounts is the pair that signs service account tokens.
const serviceAccounts = "service-accounts"

// Plane starts one lab's control plane.
type Plane struct {
	Lab      state.Lab
	Settings state.Settings
	Programs artifacts.Components
}

// Prepare writes kubeconfigs and the audit policy, and makes the certificates that do not exist yet.
func (p Plane) Prepare() error {
	dir := p.Lab.PKI()
	for _, name := range []string{ClusterCA, serviceAccounts} {
		if _, err := dir.Authority(name); err != nil {
			return err
		}
	}
	for name, request := range p.certificates() {
		if _, err := dir.Certificate(name, ClusterCA, request); err != nil {
			return err
		}
	}
	if err := os.WriteFile(p.auditPolicyFile(), []byte(auditPolicy), 0o644); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	inside := serverURL(state.HostAddress, state.APIServerPort)
	for _, user := range []string{ControllerManager, Scheduler} {
		if err := WriteKubeconfig(p.kubeconfig(user), inside, dir, dir.Pair(user)); err != nil {
			return err
		}
	}
	outside := serverURL("127.0.0.1", p.Settings.APIServerPort)
	return WriteKubeconfig(p.Lab.Kubeconfig(), outside, dir, dir.Pair("admin"))
}

func (p Plane) certificates() map[string]pki.Request {
	return map[string]pki.Request{
		APIServer: {CommonName: "kube-apiserver", Hosts: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"localhost", "127.0.0.1", state.HostAddress, state.HostIPv6, p.Settings.Network().APIService,
		}},
		// The apiserver as a client of kubelets, for logs and exec.
		"kube-apiserver-kubelet": {CommonName: "kube-apiserver-kubelet-client", Organization: "system:masters"},
		"admin":                  {CommonName: "lab-admin", Organization: "system:masters"},
		ControllerManager:        {CommonName: "system:kube-controller-manager"},
		Scheduler:                {CommonName: "system:kube-scheduler"},
	}
}

// auditPolicy logs requests without their bodies, which is enough to compare the used permissions with
// the granted ones.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func (p Plane) auditPolicyFile() string { return p.Lab.Path("audit-policy.yaml") }

// AuditLog returns the path of the apiserver's audit log, one JSON event per line.
func AuditLog(lab state.Lab) string { return lab.LogFile("audit") }

func (p Plane) kubeconfig(user string) string {
	return filepath.Join(p.Lab.PKI().Path, user+".kubeconfig")
}

func serverURL(host string, port int) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// WriteKubeconfig writes a kubeconfig that contains its certificates.
func WriteKubeconfig(file, server string, dir pki.Dir, user pki.Pair) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: dir.Pair(ClusterCA).CertFile}
	config.AuthInfos["lab"] = &clientcmdapi.AuthInfo{ClientCertificate: user.CertFile, ClientKey: user.KeyFile}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "lab"}
	config.CurrentContext = "lab"
	if err := clientcmdapi.FlattenConfig(config); err != nil { // reads the files into it
		return fmt.Errorf("writing kubeconfig %s: %w", file, err)
	}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", file, err)
	}
	return nil
}

// NodeServer returns the apiserver's URL for a node.
func NodeServer(n state.Node) string {
	return serverURL(state.NetworkOf(n.IPv6Only).Host, state.APIServerPort)
}

func (p Plane) spec(name, address string, args ...string) proc.Spec {
	return proc.Spec{
		Name:    name,
		Args:    append([]string{p.Programs.Program(name)}, args...),
		LogFile: p.Lab.LogFile(name),
		NetNS:   p.Lab.NetNSPath(),
		Address: address,
		WorkDir: p.Lab.Dir,
	}
}
