package controlplane

import (
	"fmt"
	"strconv"

	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

const (
	etcdClient = "http://127.0.0.1:2379"
	etcdPeer   = "http://127.0.0.1:2380"
)

// Etcd runs without fsync, which is slow on disks that are shared with other work: a lab's data need
// not survive a power failure.
func (p Plane) Etcd() proc.Spec {
	return p.spec(Etcd, "127.0.0.1:2379",
		"--name=lab", "--data-dir="+p.Lab.Path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+etcdClient, "--advertise-client-urls="+etcdClient,
		"--listen-peer-urls="+etcdPeer, "--initial-advertise-peer-urls="+etcdPeer,
		"--initial-cluster=lab="+etcdPeer,
	)
}

// APIServer runs with RBAC, node authorization and the default admission plugins.
func (p Plane) APIServer() proc.Spec {
	dir, network := p.Lab.PKI(), p.Settings.Network()
	serving, kubelet, ca, tokens := dir.Pair(APIServer), dir.Pair("kube-apiserver-kubelet"), dir.Pair(ClusterCA), dir.Pair(serviceAccounts)
	args := []string{
		"--etcd-servers=" + etcdClient,
		"--advertise-address=" + network.Host,
		"--secure-port=" + strconv.Itoa(state.APIServerPort),
		"--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--client-ca-file=" + ca.CertFile,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-cluster-ip-range=" + network.ServiceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + tokens.CertFile,
		"--service-account-signing-key-file=" + tokens.KeyFile,
		"--kubelet-certificate-authority=" + ca.CertFile,
		"--kubelet-client-certificate=" + kubelet.CertFile, "--kubelet-client-key=" + kubelet.KeyFile,
		"--kubelet-preferred-address-types=InternalIP",
	}
	if p.Settings.Audit {
		args = append(args, "--audit-policy-file="+p.auditPolicyFile(), "--audit-log-path="+AuditLog(p.Lab), "--audit-log-maxsize=0") // one file without rotation
	}
	return p.spec(APIServer, fmt.Sprintf("%s:%d", state.HostAddress, state.APIServerPort), args...)
}

// ControllerManager runs all default controllers.
func (p Plane) ControllerManager() proc.Spec {
	dir := p.Lab.PKI()
	ca := dir.Pair(ClusterCA)
	return p.spec(ControllerManager, "127.0.0.1:10257",
		"--kubeconfig="+p.kubeconfig(ControllerManager),
		"--authentication-kubeconfig="+p.kubeconfig(ControllerManager),
		"--authorization-kubeconfig="+p.kubeconfig(ControllerManager),
		"--bind-address=127.0.0.1", "--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+dir.Pair(serviceAccounts).KeyFile,
		"--root-ca-file="+ca.CertFile,
		"--cluster-signing-cert-file="+ca.CertFile, "--cluster-signing-key-file="+ca.KeyFile,
		"--kube-api-qps="+strconv.FormatFloat(p.Settings.ControllerManagerQPS, 'f', -1, 64),
		"--kube-api-burst="+strconv.Itoa(p.Settings.ControllerManagerBurst),
	)
}

// Scheduler runs the default scheduler.
func (p Plane) Scheduler() proc.Spec {
	return p.spec(Scheduler, "127.0.0.1:10259",
		"--kubeconfig="+p.kubeconfig(Scheduler),
		"--authentication-kubeconfig="+p.kubeconfig(Scheduler),
		"--authorization-kubeconfig="+p.kubeconfig(Scheduler),
		"--bind-address=127.0.0.1", "--leader-elect=false",
	)
}
