package kubelet

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ServeLogs serves the logs of containers that have ended, as kubelets do, until close. The status of a node
// says where the apiserver finds them.
func (k *Kubelet) ServeLogs() (status corev1.NodeStatus, closeServer func(), err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLog)
	server := httptest.NewTLSServer(mux)
	host, port, err := net.SplitHostPort(strings.TrimPrefix(server.URL, "https://"))
	if err != nil {
		return status, server.Close, fmt.Errorf("the address of the kubelet: %w", err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	status.DaemonEndpoints.KubeletEndpoint.Port = int32(n)
	return status, server.Close, err
}

func (k *Kubelet) serveLog(w http.ResponseWriter, r *http.Request) {
	for _, run := range k.Runs() {
		if run.Pod == r.PathValue("pod") {
			fmt.Fprint(w, run.Log)
			return
		}
	}
	http.Error(w, "the container has no log", http.StatusNotFound)
}
