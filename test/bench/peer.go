package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // counts the requests, as in the manager
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

const (
	// peerArgument, as the first one, makes this program run the library's provisioner.
	peerArgument    = "peer"
	peerProvisioner = "bench.gnuthought.com/directory"
)

func peerCommand(bed *testbed, c contender, r replica) []string {
	command := []string{
		os.Args[0], peerArgument, "-kubeconfig=" + bed.kubeconfig, "-directory=" + filepath.Join(bed.folder, "peer"),
		"-http-address=" + r.address, "-qps=" + strconv.Itoa(c.limits.QPS), "-burst=" + strconv.Itoa(c.limits.Burst),
		"-threads=" + strconv.Itoa(c.workers), "-finalizer=" + strconv.FormatBool(c.finalizer),
	}
	if r.lease != (lease{}) {
		command = append(command, "-leader-elect")
	}
	return command
}

// runPeer is a provisioner made with the library, as its users make theirs. It ends when the
// context does.
func runPeer(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(peerArgument, flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "file that says how to reach the apiserver")
	directory := flags.String("directory", "", "parent of the volumes' directories")
	address := flags.String("http-address", "", "host:port of /metrics")
	qps := flags.Float64("qps", 0, "requests per second")
	burst := flags.Int("burst", 0, "requests that may exceed that at once")
	threads := flags.Int("threads", 0, "workers for claims, and as many for volumes")
	finalizer := flags.Bool("finalizer", false, "add a finalizer to volumes")
	elect := flags.Bool("leader-elect", false, "compete for a Lease")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(*qps), *burst
	config.ContentType = runtime.ContentTypeProtobuf // as in the manager
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- serveMetrics(*address) }()
	library := controller.NewProvisionController(ctx, client, peerProvisioner, directories{*directory},
		controller.Threadiness(*threads), controller.AddFinalizer(*finalizer), controller.LeaderElection(*elect), controller.LeaderElectionNamespace(wellknown.Namespace))
	go library.Run(ctx)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func serveMetrics(address string) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(legacyregistry.DefaultGatherer, promhttp.HandlerOpts{}))
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Second}
	return server.ListenAndServe()
}

// directories makes and removes a directory for each volume, at once.
type directories struct{ parent string }

// Provision implements controller.Provisioner.
func (d directories) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(d.parent, o.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("making the directory of %s: %w", o.PVName, err)
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			Capacity:                      o.PVC.Spec.Resources.Requests,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path},
			},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete implements controller.Provisioner.
func (d directories) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	return os.RemoveAll(filepath.Join(d.parent, volume.Name))
}
