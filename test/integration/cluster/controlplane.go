package cluster

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const loopback = "127.0.0.1"

type ports struct{ etcdClient, etcdPeer, apiServer int }

// choosePorts asks the kernel for free ports. All are held at the same time, so that no two are equal.
func choosePorts() (chosen ports, err error) {
	for _, port := range []*int{&chosen.etcdClient, &chosen.etcdPeer, &chosen.apiServer} {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(loopback)})
		if err != nil {
			return ports{}, fmt.Errorf("choosing a port: %w", err)
		}
		defer listener.Close()
		address, ok := listener.Addr().(*net.TCPAddr)
		if !ok {
			return ports{}, fmt.Errorf("choosing a port: %s is no TCP address", listener.Addr())
		}
		*port = address.Port
	}
	return chosen, nil
}

func address(scheme string, port int) string {
	return scheme + "://" + net.JoinHostPort(loopback, strconv.Itoa(port))
}

func (c *Cluster) server() string { return address("https", c.ports.apiServer) }

func (c *Cluster) program(name string, args ...string) program {
	return program{path: filepath.Join(c.programs, name), args: args, log: filepath.Join(c.folder, name+".log")}
}

// etcdProgram does not sync to the disk: the data ends with the tests.
func (c *Cluster) etcdProgram() program {
	client, peer := address("http", c.ports.etcdClient), address("http", c.ports.etcdPeer)
	return c.program("etcd",
		"--name=test", "--data-dir="+c.data(), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=test="+peer,
	)
}

// apiServerProgram has RBAC and the default admission plugins.
func (c *Cluster) apiServerProgram() program {
	return c.program("kube-apiserver",
		"--etcd-servers="+address("http", c.ports.etcdClient),
		"--bind-address="+loopback, "--advertise-address="+loopback,
		"--secure-port="+strconv.Itoa(c.ports.apiServer),
		// No pod runs that would use the Service "kubernetes", which must not be on the loopback.
		"--endpoint-reconciler-type=none",
		"--tls-cert-file="+c.credentials.certificate, "--tls-private-key-file="+c.credentials.key,
		"--token-auth-file="+c.credentials.tokens,
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--service-cluster-ip-range=10.0.0.0/24",
		// A range with the tunnels' ports in it, as in some clusters.
		"--service-node-port-range=20000-32767",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.credentials.serviceAccounts,
		"--service-account-signing-key-file="+c.credentials.serviceAccounts,
	)
}

// controllers are the controllers whose objects the manager uses. The node controllers are left out: they would
// take the simulated nodes for dead.
var controllers = []string{
	"ephemeral-volume-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"persistentvolume-binder-controller",
	"persistentvolume-expander-controller",
	"persistentvolume-protection-controller",
	"persistentvolumeclaim-protection-controller",
	"serviceaccount-controller",
	"ttl-after-finished-controller",
}

func (c *Cluster) controllerManagerProgram() program {
	return c.program("kube-controller-manager",
		"--kubeconfig="+c.credentials.kubeconfig,
		"--controllers="+strings.Join(controllers, ","),
		"--secure-port=0", "--leader-elect=false",
		"--service-account-private-key-file="+c.credentials.serviceAccounts,
		"--kube-api-qps="+strconv.Itoa(c.qps), "--kube-api-burst="+strconv.Itoa(2*c.qps),
	)
}

// waitForControllers waits for an object that a controller creates.
func (c *Cluster) waitForControllers(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return c.waitFor(ctx, "the controllers", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
