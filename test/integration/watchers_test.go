//go:build integration

package integration_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

const (
	largeFleet  = 5000 // nodes, to which the numbers are extrapolated
	mostBytes   = 1e9  // for these
	usualAgents = 50
	manyAgents  = 1000
)

// fleet has agents that each watch the table's metadata and its view, with a connection of its own.
type fleet struct {
	*testenv.Env
	configs []*rest.Config
	events  chan int // the bytes of each event that an agent has received
	ended   sync.WaitGroup
}

// TestManyAgentsWatchAFullTable measures what one change of the table costs the apiserver, and the writes of all
// agents' states. It runs before the tests that run side by side, so that the apiserver does nothing else.
func TestManyAgentsWatchAFullTable(t *testing.T) {
	count := usualAgents
	if stunneltest.IsLong() {
		count = manyAgents
	}
	env := newEnv(t)
	installConditions(env)
	f := &fleet{Env: env, events: make(chan int, 2*count)}
	full, small := randomTable(ports.MaxTableBytes), randomTable(2<<10)
	table := f.write(f.stored(full))
	f.watch(count, table.ResourceVersion)
	for _, text := range []string{full + "last_update: now", small} {
		f.measure(fmt.Sprintf("a change of a table of %d KiB", len(text)>>10), func() {
			table.Data[wellknown.TargetsKey] = text
			f.expectEvents(f.change(table))
		})
	}
	f.measure("their first states", func() { f.writeStates(1) })
	f.measure("their next states", func() { f.writeStates(2) })
}

// randomTable returns a table with six zones, of which no more can be compressed than of a real one.
func randomTable(size int) string {
	random, text := rand.New(rand.NewPCG(1, 2)), strings.Builder{}
	text.WriteString("efs_stunnel_targets:\n")
	for n := 0; text.Len() < size-(1<<10); n++ {
		id := fmt.Sprintf("fs-0%016x", random.Uint64())
		fmt.Fprintf(&text, "  %s:\n    dns_name: %[1]s.efs.us-east-1.amazonaws.com\n    name: team-%d\n    stunnel_port: %d\n", id, random.IntN(1000), 20490+n)
		addresses := [2]strings.Builder{}
		for zone := range 6 {
			address := fmt.Sprintf("10.%d.%d.%d", zone, random.IntN(256), random.IntN(256))
			fmt.Fprintf(&addresses[0], "      subnet-0123456789abcde%02d: %s\n", zone, address)
			fmt.Fprintf(&addresses[1], "      us-east-1%c: %s\n", 'a'+zone, address)
		}
		fmt.Fprintf(&text, "    mount_target_ip_by_subnet:\n%s    mount_target_ip_by_zone:\n%s", addresses[0].String(), addresses[1].String())
	}
	return text.String()
}

// watch has agents watch metadata and view from a version on.
func (f *fleet) watch(count int, version string) {
	f.Helper()
	const protobuf = "application/vnd.kubernetes.protobuf"
	var opening errgroup.Group
	for range count {
		config := rest.CopyConfig(shared.Config())
		config.Dial = (&net.Dialer{}).DialContext // one of its own has a connection of its own
		f.configs = append(f.configs, config)
		opening.Go(func() error {
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			return errors.Join(f.watchOne(client, wellknown.TargetsConfigMap, version, protobuf+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
				f.watchOne(client, wellknown.ViewConfigMap, version, protobuf))
		})
	}
	if err := opening.Wait(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(f.ended.Wait) // the context of the test has ended
}

// watchOne passes on the size of each event, which has its length before it.
func (f *fleet) watchOne(client kubernetes.Interface, name, version, accept string) error {
	stream, err := client.CoreV1().RESTClient().Get().Namespace(f.Namespace).Resource("configmaps").
		VersionedParams(&metav1.ListOptions{
			Watch: true, ResourceVersion: version, FieldSelector: metav1.ObjectNameField + "=" + name,
		}, scheme.ParameterCodec).SetHeader("Accept", accept).Stream(f.Context())
	if err != nil {
		return err
	}
	f.ended.Go(func() {
		defer stream.Close()
		for {
			var length uint32
			if err := binary.Read(stream, binary.BigEndian, &length); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, stream, int64(length)); err != nil {
				return
			}
			f.events <- int(length) + 4
		}
	})
	return nil
}

// stored returns the ConfigMap of a table.
func (f *fleet) stored(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: wellknown.TargetsConfigMap}, Data: map[string]string{wellknown.TargetsKey: text},
	}
}

// write creates or updates a ConfigMap.
func (f *fleet) write(object *corev1.ConfigMap) *corev1.ConfigMap {
	f.Helper()
	configMaps := f.Client.CoreV1().ConfigMaps(f.Namespace)
	written, err := configMaps.Update(f.Context(), object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		written, err = configMaps.Create(f.Context(), object, metav1.CreateOptions{})
	}
	if err != nil {
		f.Fatal(err)
	}
	return written
}

// change writes the table and its view, as the manager does, and returns the size of the view.
func (f *fleet) change(table *corev1.ConfigMap) int {
	f.Helper()
	written := f.write(table)
	table.ResourceVersion = written.ResourceVersion
	view, err := ports.NewView(written)
	if err != nil {
		f.Fatal(err)
	}
	return f.write(view).Size()
}

// expectEvents expects two events of each agent, metadata and the view.
func (f *fleet) expectEvents(size int) {
	f.Helper()
	const metadata = 2 << 10
	sum := 0
	for range 2 * len(f.configs) {
		select {
		case event := <-f.events:
			sum += event
			if event > metadata && (event < size || event > size+metadata) {
				f.Errorf("an event has %d bytes, for a view of %d", event, size)
			}
		case <-time.After(2 * time.Minute):
			f.Fatal("some agents have received nothing")
		}
	}
	all := f.extrapolated(float64(sum))
	f.Logf("%d agents received %.1f MB; %d would receive %.0f MB", len(f.configs), float64(sum)/1e6, largeFleet, all/1e6)
	if all > mostBytes {
		f.Errorf("%.0f bytes, want at most %.0f", all, mostBytes)
	}
}

func (f *fleet) extrapolated(n float64) float64 { return n / float64(len(f.configs)) * largeFleet }

// writeStates has every agent write the NodeTunnels of its node, all at once.
func (f *fleet) writeStates(round int) {
	f.Helper()
	var writing errgroup.Group
	for i, config := range f.configs {
		writing.Go(func() error {
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				return err
			}
			w := objects.StatusWriter{Client: client, Resource: v1alpha1.NodeTunnelsObjects(), Kind: v1alpha1.NodeTunnelsKind}
			state := v1alpha1.NodeTunnelsStatus{Version: "test", Total: 300, InUse: round}
			for n := range 5 {
				state.Tunnels = append(state.Tunnels, v1alpha1.Tunnel{Name: fmt.Sprintf("fs-0123456789abcde%02d", n), Port: 20490 + n, MountTarget: "10.0.0.4", InUse: true, LatencyMillis: 1})
			}
			return w.Write(f.Context(), f.Named(fmt.Sprintf("agent-%d", i)), state)
		})
	}
	if err := writing.Wait(); err != nil {
		f.Fatal(err)
	}
}

// measure logs the time that something takes, and the processor time of the apiserver.
func (f *fleet) measure(what string, do func()) {
	f.Helper()
	before, err := shared.APIServerTime()
	if err != nil {
		f.Fatal(err)
	}
	begun := time.Now()
	do()
	took := time.Since(begun).Seconds()
	after, err := shared.APIServerTime()
	if err != nil {
		f.Fatal(err)
	}
	processor := (after - before).Seconds()
	f.Logf("WATCHERS %s: %d agents %.2f s, apiserver's processor %.2f s; %d agents %.1f s, %.1f s",
		what, len(f.configs), took, processor, largeFleet, f.extrapolated(took), f.extrapolated(processor))
}
