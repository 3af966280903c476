//go:build integration

package integration_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

const (
	fullTable   = 900 << 10 // the most that a table has
	largeFleet  = 5000      // nodes, to which the numbers are extrapolated
	usualAgents = 50
	manyAgents  = 1000
)

// fleet has agents that each watch the table, with a connection of its own.
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
	table := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace, Name: wellknown.TargetsConfigMap},
		Data:       map[string]string{"efs-stunnel.yaml": strings.Repeat("  fs-0123456789abcdef0:\n", fullTable/24)},
	}
	table, err := env.Client.CoreV1().ConfigMaps(env.Namespace).Create(t.Context(), table, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{Env: env, events: make(chan int, count)}
	f.watch(count, table.ResourceVersion)
	for _, size := range []int{fullTable, 1 << 10} {
		f.measure(fmt.Sprintf("a change of a table of %d KiB", size>>10), func() {
			table.Data["efs-stunnel.yaml"] = table.Data["efs-stunnel.yaml"][:size-24] + "last_update: now"
			if table, err = env.Client.CoreV1().ConfigMaps(env.Namespace).Update(t.Context(), table, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			f.expectEvents(size)
		})
	}
	f.measure("their first states", func() { f.writeStates(1) })
	f.measure("their next states", func() { f.writeStates(2) })
}

// watch has agents watch the table from a version on.
func (f *fleet) watch(count int, version string) {
	f.Helper()
	var opening errgroup.Group
	for range count {
		config := rest.CopyConfig(shared.Config())
		config.Dial = (&net.Dialer{}).DialContext // one of its own has a connection of its own
		f.configs = append(f.configs, config)
		opening.Go(func() error { return f.watchOne(config, version) })
	}
	if err := opening.Wait(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(f.ended.Wait) // the context of the test has ended
}

// watchOne passes on the size of each event, which is one line of JSON.
func (f *fleet) watchOne(config *rest.Config, version string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	stream, err := client.CoreV1().RESTClient().Get().Namespace(f.Namespace).Resource("configmaps").
		VersionedParams(&metav1.ListOptions{
			Watch: true, ResourceVersion: version, FieldSelector: metav1.ObjectNameField + "=" + wellknown.TargetsConfigMap,
		}, scheme.ParameterCodec).SetHeader("Accept", "application/json").Stream(f.Context())
	if err != nil {
		return err
	}
	f.ended.Go(func() {
		defer stream.Close()
		lines := bufio.NewReaderSize(stream, 64<<10)
		for size := 0; ; {
			part, err := lines.ReadSlice('\n')
			size += len(part)
			switch {
			case err == nil:
				f.events <- size
				size = 0
			case !errors.Is(err, bufio.ErrBufferFull):
				return
			}
		}
	})
	return nil
}

// expectEvents expects one event of each agent, which is the table and little more.
func (f *fleet) expectEvents(size int) {
	f.Helper()
	sum := 0
	for range f.configs {
		select {
		case event := <-f.events:
			sum += event
			if event < size || event > size+size/10+(4<<10) {
				f.Errorf("an event has %d bytes, for a table of %d", event, size)
			}
		case <-time.After(2 * time.Minute):
			f.Fatal("some agents have received nothing")
		}
	}
	f.Logf("%d agents received %.1f MB; %d would receive %.0f MB", len(f.configs), float64(sum)/1e6, largeFleet, f.extrapolated(float64(sum)/1e6))
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
