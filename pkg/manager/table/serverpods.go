package table

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// serverPod is the pod of an NFS server.
type serverPod struct {
	pod     *corev1.Pod // the one that is ready, or else the newest; empty if there is none
	warning string      // the newest one about it, which has the output of its probe; ""
}

// readServerPods reads the pods of the servers whose Services select them by the label of servers. Of others, such as a
// server outside of the cluster, nothing is known.
func readServerPods(c *caches.Caches, servers []server) map[string]serverPod {
	all := map[string]serverPod{}
	for _, one := range servers {
		if one.service.Spec.Selector[wellknown.LabelServer] != one.id {
			continue
		}
		p := serverPod{pod: &corev1.Pod{}}
		if pods := c.ServerPods(one.id); len(pods) > 0 {
			p.pod = slices.MaxFunc(pods, func(a, b *corev1.Pod) int {
				return cmp.Or(cmp.Compare(oneIf(mountjobs.IsReady(a)), oneIf(mountjobs.IsReady(b))), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
			})
			p.warning = newestWarning(c.WarningsAbout(p.pod.UID))
		}
		all[one.id] = p
	}
	return all
}

func newestWarning(events []corev1.Event) string {
	if len(events) == 0 {
		return ""
	}
	return slices.MaxFunc(events, func(a, b corev1.Event) int { return mountjobs.LastSeen(a).Compare(mountjobs.LastSeen(b)) }).Message
}

var numbersInText = regexp.MustCompile("[0-9]+")

// notReady returns the condition of a server whose pod is not ready. Its volumes and its target stay as they are: clients
// wait for it. A message that has other numbers, as of bytes that are free, is no news.
func (s server) notReady(p serverPod) notice {
	why := fmt.Sprintf("the pod %s of its server is not ready: %s: kubectl -n %s describe pod %s", p.pod.Name, p.problem(), p.pod.Namespace, p.pod.Name)
	if p.pod.Name == "" {
		why = fmt.Sprintf("its Service %s leads to no pod: kubectl -n %s get statefulsets,pods -l %s=%s", s.service.Name, s.service.Namespace, wellknown.LabelServer, s.id)
	}
	n := s.condition(wellknown.EventServerNotReady, why)
	n.Detail = numbersInText.ReplaceAllString(why, "")
	return n
}

// condition is one of a server, with an event on its Service, too.
func (s server) condition(reason, message string) notice {
	subject := status.Subject{Kind: status.FileSystem, Name: s.id}
	return notice{about: s.service, Condition: status.Condition{Subject: subject, Reason: reason, Message: message}}
}

// problem returns why the pod is not ready, on one line.
func (p serverPod) problem() string {
	if p.pod.DeletionTimestamp != nil {
		return "it ends"
	}
	said := p.warning
	for _, c := range p.pod.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			said = cmp.Or(said, c.Message)
		}
	}
	return oneLine(cmp.Or(said, "it starts"))
}

// readSizes returns what the init containers of servers say of quotas. While a pod ends, or one starts, what was said
// before holds; of servers that are missing here, nothing is known.
func readSizes(before map[string]string, pods map[string]serverPod) map[string]string {
	now := map[string]string{}
	for id, p := range pods {
		said, known := before[id]
		if mountjobs.IsReady(p.pod) { // without having said anything, it has no quotas
			said, known = "", true
		}
		for _, c := range p.pod.Status.InitContainerStatuses {
			if ended := c.State.Terminated; c.Name == wellknown.QuotasContainer && ended != nil && ended.Message != "" {
				said, known = oneLine(ended.Message), true
			}
		}
		if known {
			now[id] = said
		}
	}
	return now
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// isServerPod is true for the pods of NFS servers.
func isServerPod(before, after *corev1.Pod) bool {
	return before != nil && before.Labels[wellknown.LabelServer] != "" || after != nil && after.Labels[wellknown.LabelServer] != ""
}

// isOfServerPod is true for new Warnings about pods of NFS servers.
func (c *Controller) isOfServerPod(_, event *corev1.Event) bool {
	return event != nil && isServerPod(nil, c.caches.PodNamed(event.InvolvedObject.Namespace, event.InvolvedObject.Name))
}
