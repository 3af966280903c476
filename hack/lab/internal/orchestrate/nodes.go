package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/images"
	"gnuthought.com/efs-stunnel/hack/lab/internal/machine"
	"gnuthought.com/efs-stunnel/hack/lab/internal/network"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

func (o *Orchestrator) startNode(ctx context.Context, s state.Settings, n state.Node, a artifactSet) error {
	if r, ok := o.Lab.Parts().Get(n.Part()); ok && r.Alive() {
		return nil // its disks are in use; new settings apply from its next start
	}
	if err := network.AddNode(ctx, o.Lab, n); err != nil {
		return fmt.Errorf("connecting node %s: %w", n.Name, err)
	}
	vm := machine.Machine{
		Lab: o.Lab, Node: n,
		MemoryMiB: s.NodeMemoryMiB, CPUs: s.NodeCPUs,
		Emulator: a.emulator, Image: a.nodeImage, ProgramsDisk: a.programsDisk, Accelerator: a.accelerator,
		PauseImage: images.InCluster(pauseImage),
	}
	if err := vm.Prepare(ctx); err != nil {
		return err
	}
	return o.ensure(ctx, vm.Spec())
}

// notReady returns the reason why a node is not Ready, "" if it is.
func (o *Orchestrator) notReady(n state.Node, object *corev1.Node) string {
	r, ok := o.Lab.Parts().Get(n.Part())
	if !ok {
		return "its machine is stopped"
	}
	for _, c := range object.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status != corev1.ConditionTrue {
			return c.Message
		}
		if c.LastHeartbeatTime.Time.Before(r.StartedAt.Truncate(time.Second)) {
			return "no heartbeat since its machine was started"
		}
		return ""
	}
	return "no Ready condition yet"
}

// StartNode starts the machine of a stopped node.
func (o *Orchestrator) StartNode(ctx context.Context, name string) error {
	return o.withNode(name, func(s state.Settings, n state.Node) error { return o.boot(ctx, s, n) })
}

func (o *Orchestrator) boot(ctx context.Context, s state.Settings, n state.Node) error {
	maker, err := artifacts.NewMaker()
	if err != nil {
		return err
	}
	a, err := o.makeArtifacts(ctx, maker)
	if err != nil {
		return err
	}
	if err := o.registerNode(ctx, n); err != nil {
		return err
	}
	return o.Steps.Do(ctx, "node "+n.Name+" Ready", func(ctx context.Context, notes *step.Notes) error {
		if err := o.startNode(ctx, s, n, a); err != nil {
			return err
		}
		return o.awaitNodes(ctx, notes, s, []state.Node{n}, a)
	})
}

// StopNode shuts the node down, or, with hard, kills its machine. Its disk and its Node object are kept.
func (o *Orchestrator) StopNode(ctx context.Context, name string, hard bool) error {
	return o.withNode(name, func(_ state.Settings, n state.Node) error {
		return o.Steps.Do(ctx, "stopping node "+name, func(ctx context.Context, notes *step.Notes) error { return o.halt(ctx, notes, n, hard) })
	})
}

func (o *Orchestrator) halt(ctx context.Context, notes *step.Notes, n state.Node, hard bool) error {
	if !hard {
		o.powerOff(ctx, notes, n)
	}
	return o.Lab.Parts().Stop(ctx, n.Part(), stopGrace)
}

// powerOff shuts the guest down. It returns no error, because the caller kills a machine that does not
// end.
func (o *Orchestrator) powerOff(ctx context.Context, notes *step.Notes, n state.Node) {
	const limit = 30 * time.Second
	command := machine.SSHCommand(o.Lab, n, false, []string{"/bin/busybox", "poweroff"})
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := network.RunInside(ctx, o.Lab, command); err != nil {
		return
	}
	_ = await(ctx, notes, limit, n.Name, func(context.Context) error {
		if r, ok := o.Lab.Parts().Get(n.Part()); ok && r.Alive() {
			return errors.New("still running")
		}
		return nil
	})
}

// AddNode makes one more node and waits until it is Ready.
func (o *Orchestrator) AddNode(ctx context.Context, name, zone string) error {
	s, unlock, err := o.lockExisting()
	if err != nil {
		return err
	}
	defer unlock()
	n, err := s.NewNode(name, zone)
	if err != nil {
		return err
	}
	s.Nodes = append(s.Nodes, n)
	if err := o.Lab.Save(s); err != nil {
		return err
	}
	return o.boot(ctx, s, n)
}

// RemoveNode removes a node: machine, disk, addresses, Node object.
func (o *Orchestrator) RemoveNode(ctx context.Context, name string) error {
	return o.withNode(name, func(s state.Settings, n state.Node) error {
		return o.Steps.Do(ctx, "removing node "+name, func(ctx context.Context, notes *step.Notes) error { return o.remove(ctx, notes, s, n) })
	})
}

func (o *Orchestrator) remove(ctx context.Context, notes *step.Notes, s state.Settings, n state.Node) error {
	if err := o.halt(ctx, notes, n, true); err != nil {
		return err
	}
	c, err := client(o.Lab)
	if err != nil {
		return err
	}
	err = await(ctx, notes, partLimit, "Node "+n.Name+" to be deleted", func(ctx context.Context) error {
		if err := c.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := o.unregisterNode(ctx, n); err != nil {
		return err
	}
	if err := network.RemoveNode(ctx, o.Lab, n); err != nil {
		return fmt.Errorf("disconnecting node %s: %w", n.Name, err)
	}
	if err := o.removeNodeFiles(n); err != nil {
		return err
	}
	s.Nodes = slices.DeleteFunc(s.Nodes, func(other state.Node) bool { return other.Name == n.Name })
	return o.Lab.Save(s)
}

// removeNodeFiles also removes the certificate, because a later node of the same name may have another
// address.
func (o *Orchestrator) removeNodeFiles(n state.Node) error {
	files, err := filepath.Glob(filepath.Join(o.Lab.PKI().Path, "kubelet-"+n.Name+"-*"))
	if err != nil {
		return fmt.Errorf("removing files of node %s: %w", n.Name, err)
	}
	for _, f := range append(files, o.Lab.Path("nodes", n.Name)) {
		if err := os.RemoveAll(f); err != nil {
			return fmt.Errorf("removing files of node %s: %w", n.Name, err)
		}
	}
	return nil
}

func (o *Orchestrator) withNode(name string, do func(state.Settings, state.Node) error) error {
	s, unlock, err := o.lockExisting()
	if err != nil {
		return err
	}
	defer unlock()
	n, err := s.Node(name)
	if err != nil {
		return err
	}
	return do(s, n)
}
