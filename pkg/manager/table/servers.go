package table

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// serverLocation is where a server's address is in the table, in place of a subnet: a Service has no zone.
const serverLocation = "service"

// server is an NFS server that a Service names.
type server struct {
	service *corev1.Service
	id      string
	target  ports.Target
	err     error // why the Service cannot be used
}

// readServers reads the Services with the label of a server, the oldest first.
func readServers(services []*corev1.Service) (all []server) {
	for _, service := range services {
		if id, ok := service.Labels[wellknown.LabelServer]; ok {
			s := server{service: service, id: id}
			s.target, s.err = serverTarget(service, id)
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b server) int {
		return cmp.Or(a.service.CreationTimestamp.Compare(b.service.CreationTimestamp.Time),
			strings.Compare(a.service.Name, b.service.Name))
	})
	return all
}

// serverTarget returns the target of a server. Its certificate must name the Service, as clients in the cluster do.
func serverTarget(service *corev1.Service, id string) (ports.Target, error) {
	t := ports.Target{
		Name: service.Name, DNSName: wellknown.ServerHost(service.Name, service.Namespace), ClientCertificate: true,
		CACertificates: service.Annotations[wellknown.AnnotationCACertificates],
	}
	if err := ports.CheckTargetID(id); err != nil {
		return t, fmt.Errorf("label %s: %w", wellknown.LabelServer, err)
	}
	if efs.CheckFileSystemID(id) == nil {
		return t, fmt.Errorf("label %s: %s is the id of an Amazon EFS file system; want one that does not begin with fs-", wellknown.LabelServer, id)
	}
	if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == wellknown.NFSPort }) {
		return t, fmt.Errorf("it has no port %d; want one", wellknown.NFSPort)
	}
	for _, text := range service.Spec.ClusterIPs {
		switch address, _ := netip.ParseAddr(text); { // that of a headless Service is "None"
		case address.Is4():
			t.AddressBySubnet = map[string]netip.Addr{serverLocation: address}
		case address.IsValid():
			t.IPv6BySubnet = map[string]netip.Addr{serverLocation: address}
		}
	}
	if !t.HasAddress() {
		return t, errors.New("it has no cluster IP; want a Service of type ClusterIP that is not headless")
	}
	if _, err := ports.Authorities(t.CACertificates); err != nil {
		return t, fmt.Errorf("annotation %s: %w; the certificate Job, or whoever made the server's certificate, writes it",
			wellknown.AnnotationCACertificates, err)
	}
	return t, nil
}

// withServers adds the servers to the pinned targets, which they are to everything that follows. What the administrator
// has pinned stays as it is, and so does the one of two Services with one id that the table has, or else the older one.
func (s state) withServers(all []server) state {
	if s.pinned.table == nil {
		return s // nothing is assigned
	}
	merged := *s.pinned.table
	merged.Targets = maps.Clone(merged.Targets)
	if merged.Targets == nil {
		merged.Targets = map[string]ports.Target{}
	}
	s.servers = map[string]server{}
	for _, one := range all {
		_, pinned := s.pinned.table.Targets[one.id]
		other, taken := s.servers[one.id]
		holder := s.holder(one)
		switch {
		case one.err != nil:
		case pinned:
			one.err = fmt.Errorf("the ConfigMap %s has a target %s, too, and takes precedence; want an id that no other target has", wellknown.PinnedConfigMap, one.id)
		case holder != "":
			one.err = fmt.Errorf("the Service %s is that of server %s; want an id that no other target has. If this Service leads to the same disk, delete the target %s from the ConfigMap %s",
				holder, one.id, one.id, wellknown.TargetsConfigMap)
		case taken:
			one.err = fmt.Errorf("the Service %s, which is older, is that of server %s; want an id that no other target has", other.service.Name, one.id)
		default:
			merged.Targets[one.id], s.servers[one.id] = one.target, one
			continue
		}
		s.noServers = append(s.noServers, one)
	}
	s.pinned.table = &merged
	return s
}

// holder returns the name of another Service that has the id in the table. Its volumes must not move to another disk because
// their own Service is broken, or is being created again.
func (s state) holder(of server) string {
	known := s.table.targets()[of.id]
	name, isService := strings.CutSuffix(known.DNSName, wellknown.ServerHost("", of.service.Namespace))
	if !known.ClientCertificate || !isService || name == of.service.Name {
		return ""
	}
	return name
}

// serverConditions are about Services that are refused, servers that are not ready, and servers of the table that no
// Service names.
func (s state) serverConditions() (all []notice) {
	for _, r := range s.noServers {
		message := fmt.Sprintf("Service %s is not used as an NFS server: %v", r.service.Name, r.err)
		n := condition(message, wellknown.EventServerRefused, message) // another cause is another condition
		n.about = r.service
		all = append(all, n)
	}
	for _, id := range slices.Sorted(maps.Keys(s.servers)) {
		one := s.servers[id]
		if p, known := s.pods[id]; known && !mountjobs.IsReady(p.pod) {
			all = append(all, one.notReady(p))
		}
		if said := s.sizes[id]; said != "" && said != wellknown.QuotasEnforced {
			all = append(all, one.condition(wellknown.EventSizesNotEnforced, "the sizes of volumes are not enforced: "+said))
		}
	}
	if s.pinned.table == nil {
		return all
	}
	for _, id := range slices.Sorted(maps.Keys(s.table.targets())) {
		target := s.table.table.Targets[id]
		if _, named := s.pinned.table.Targets[id]; named || !target.ClientCertificate || !target.NotFoundSince.IsZero() {
			continue
		}
		all = append(all, ofFileSystem(id, "", wellknown.EventServerMissing, fmt.Sprintf(
			"no usable Service with the label %s=%s, and no pinned target, names %s any longer: its port %d and its last addresses stay",
			wellknown.LabelServer, id, id, target.Port)))
	}
	return all
}

type serverPod struct {
	pod     *corev1.Pod // the one that is ready, or else the newest; empty if there is none
	warning string      // the newest one about it, which has the output of its probe; ""
}

// readServerPods reads the pods of the servers whose Services select them by the label of servers. Of others, such as a
// server outside of the cluster, nothing is known.
func readServerPods(c *caches.Caches, servers map[string]server) map[string]serverPod {
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
	n := ofFileSystem(s.id, "", reason, message)
	n.about = s.service
	return n
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

func isServerPod(before, after *corev1.Pod) bool {
	return before != nil && before.Labels[wellknown.LabelServer] != "" || after != nil && after.Labels[wellknown.LabelServer] != ""
}

// isOfServerPod is true for new Warnings about pods of NFS servers.
func (c *Controller) isOfServerPod(_, event *corev1.Event) bool {
	return event != nil && isServerPod(nil, c.caches.PodNamed(event.InvolvedObject.Namespace, event.InvolvedObject.Name))
}
