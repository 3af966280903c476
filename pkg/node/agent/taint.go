package agent

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// taintInterval is between two checks of the node's taints.
const taintInterval = 500 * time.Millisecond

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string        `json:"op"`
	Path  string        `json:"path"`
	Value *corev1.Taint `json:"value,omitempty"`
}

// untaint is the patch that removes our taint from a node, nil when it is not there. Each
// removal follows a test operation, so that no other taint is removed if the list has changed.
func untaint(taints []corev1.Taint) []operation {
	var patch []operation
	for i := len(taints) - 1; i >= 0; i-- { // from the end, so that the indexes before stay valid
		if taints[i].Key != wellknown.TaintAgentNotReady {
			continue
		}
		path := "/spec/taints/" + strconv.Itoa(i)
		patch = append(patch, operation{"test", path, &taints[i]}, operation{"remove", path, nil})
	}
	return patch
}

// removeTaint removes the startup taint whenever the agent is ready and the node has it.
func (a *Agent) removeTaint(ctx context.Context) {
	tried, pause := time.Time{}, taintInterval
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		node := a.inbox.get().node
		if node == nil || a.Ready() != nil || time.Since(tried) < pause {
			return
		}
		patch := untaint(node.Spec.Taints)
		if patch == nil {
			return
		}
		tried, pause = time.Now(), min(2*pause, time.Minute)
		if err := a.patch(ctx, patch); err != nil {
			a.options.Log.Warn("startup taint cannot be removed", "node", a.options.Node, "requeueAfter", pause, "err", err)
			return
		}
		pause = taintInterval
		a.options.Log.Info("startup taint removed", "node", a.options.Node)
	}, taintInterval)
}

func (a *Agent) patch(ctx context.Context, patch []operation) error {
	text, err := json.Marshal(patch)
	if err == nil {
		_, err = a.options.Client.CoreV1().Nodes().Patch(ctx, a.options.Node, types.JSONPatchType, text, metav1.PatchOptions{})
	}
	return err
}
