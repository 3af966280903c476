// Package collect packs what an issue about an installation needs into an archive, without secrets:
// objects, logs, and what inspect says about them.
package collect

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
)

// Options are the settings of one collection.
type Options struct {
	Snapshot       *inspect.Snapshot
	RedactAccounts bool
	// Progress is called with what is read next.
	Progress func(step string)

	read logReader // nil asks the apiserver
}

// Collect reads logs, and packs them with the objects of the snapshot. What cannot be read is in the
// archive's index; an error means that the context has ended.
func Collect(ctx context.Context, client kubernetes.Interface, o Options) (*Archive, error) {
	c := &collector{Options: o, redactor: redactor{o.RedactAccounts}, budget: mostLogs}
	c.archive = &Archive{time: o.Snapshot.Now, account: o.RedactAccounts, Unread: reading.Texts(o.Snapshot.Unread)}
	if c.read == nil {
		c.read = func(ctx context.Context, namespace, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
			return client.CoreV1().Pods(namespace).GetLogs(pod, options).Stream(ctx)
		}
	}
	c.version(client)
	conclude(c, "status", inspect.NewStatus(c.Snapshot))
	conclude(c, "doctor", inspect.Examine(c.Snapshot, inspect.Subject{}))
	c.objects()
	c.logs(ctx)
	return c.archive, ctx.Err()
}

type logReader func(ctx context.Context, namespace, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error)

type collector struct {
	Options

	redactor redactor
	archive  *Archive
	budget   int // bytes of logs that may still be read
	denied   bool
}

func (c *collector) add(name, purpose, text string) {
	c.archive.files = append(c.archive.files, file{name, purpose, plain(text)})
}

func (c *collector) leave(format string, args ...any) {
	c.archive.left = append(c.archive.left, printing.Line(c.redactor.text(fmt.Sprintf(format, args...))))
}

// version adds the versions of the plugin and of Kubernetes. The installation's are in the status.
func (c *collector) version(client kubernetes.Interface) {
	text := "plugin      " + buildinfo.Read().String() + "\n"
	server, err := client.Discovery().ServerVersion()
	if err != nil {
		c.leave("the version of Kubernetes: %v", err)
	} else {
		text += fmt.Sprintf("Kubernetes  %s, %s\n", server.GitVersion, server.Platform)
	}
	c.add("versions.txt", "versions of the plugin and of Kubernetes", c.redactor.text(text))
}

func conclude[T printing.Report](c *collector, command string, report T) {
	var text strings.Builder
	if err := printing.Write(&text, "", report, c.Snapshot.Now); err != nil {
		c.leave("%s.txt: %v", command, err)
	}
	c.add(command+".txt", "output of kubectl efs-stunnel "+command, c.redactor.text(text.String()))
}

// The most objects of a kind that are packed.
const mostObjects, mostEvents = 1000, 5000

func (c *collector) objects() {
	s := c.Snapshot
	var nodes []*corev1.Node
	for _, n := range s.Nodes {
		nodes = append(nodes, node(n))
	}
	addObjects(c, "manager", mostObjects, present(s.Manager))
	addObjects(c, "agents", mostObjects, present(s.Agents))
	addObjects(c, "lease", mostObjects, present(s.Lease))
	addObjects(c, "tables", mostObjects, present(s.Table, s.Pinned))
	addObjects(c, "pods", mostObjects, slices.Concat(s.PodsByPart()))
	addObjects(c, "jobs", mostObjects, s.OurJobs())
	addObjects(c, "claims", mostObjects, s.OurClaims())
	addObjects(c, "volumes", mostObjects, s.OurVolumes())
	addObjects(c, "storageclasses", mostObjects, s.OurClasses())
	addObjects(c, "sharedvolumes", mostObjects, s.SharedVolumes)
	addObjects(c, "conditions", mostObjects, s.Conditions)
	addObjects(c, "nodes", mostObjects, nodes)
	addObjects(c, "events", mostEvents, s.OurEvents())
}

// present leaves out what does not exist.
func present[T any](objects ...*T) []*T {
	return slices.DeleteFunc(objects, func(object *T) bool { return object == nil })
}

func addObjects[T runtime.Object](c *collector, name string, most int, all []T) {
	if len(all) == 0 {
		return
	}
	shown := all[:c.most(name, len(all), most)]
	var text strings.Builder
	for _, object := range shown {
		document, err := c.redactor.object(object)
		if err != nil {
			c.leave("one of the %s: %v", name, err)
		}
		text.WriteString("---\n" + document)
	}
	c.add("objects/"+name+".yaml", fmt.Sprintf("%d of %d", len(shown), len(all)), text.String())
}

// most returns how many of n objects are packed, and records how many are left out.
func (c *collector) most(name string, n, most int) int {
	if n > most {
		c.leave("%d of %d %s", n-most, n, name)
	}
	return min(n, most)
}

// Bounds of logs.
const (
	mostLines  = 5000     // of a container
	mostOfOne  = 2 << 20  // bytes of a container
	mostLogs   = 64 << 20 // bytes of all
	mostAgents = 20       // pods of which logs are read
	mostJobs   = 20
)

// logs reads those of the manager, then of mount Jobs, then of agents.
func (c *collector) logs(ctx context.Context) {
	for _, pod := range c.pods() {
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			c.log(ctx, pod, status.Name, false)
			if status.RestartCount > 0 {
				c.log(ctx, pod, status.Name, true)
			}
		}
	}
}

// pods returns the pods whose logs are read. Agents with a problem come first.
func (c *collector) pods() []*corev1.Pod {
	managers, workers, agents := c.Snapshot.PodsByPart()
	slices.SortStableFunc(workers, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	slices.SortStableFunc(agents, func(a, b *corev1.Pod) int { return cmp.Compare(healthOf(a), healthOf(b)) })
	return slices.Concat(managers,
		workers[:c.most("mount Jobs' logs", len(workers), mostJobs)], agents[:c.most("agents' logs", len(agents), mostAgents)])
}

// healthOf returns 0 for a pod that is not ready, and 1 for a pod that was restarted.
func healthOf(pod *corev1.Pod) int {
	switch {
	case !mountjobs.IsReady(pod):
		return 0
	case slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.RestartCount > 0 }):
		return 1
	}
	return 2
}

// log reads the end of a log, unless the context has ended.
func (c *collector) log(ctx context.Context, pod *corev1.Pod, container string, previous bool) {
	name := fmt.Sprintf("logs/%s/%s.log", pod.Name, container)
	if previous {
		name = fmt.Sprintf("logs/%s/%s.previous.log", pod.Name, container)
	}
	if c.denied || ctx.Err() != nil {
		return
	}
	if c.budget <= 0 {
		c.leave("%s: the archive has %d MiB of logs", name, mostLogs>>20)
		return
	}
	c.Progress("reading " + name)
	lines, limit := int64(mostLines), int64(mostOfOne)
	stream, err := c.read(ctx, pod.Namespace, pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, Timestamps: true, TailLines: &lines, LimitBytes: &limit,
	})
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(stream, mostOfOne))
		stream.Close()
	}
	switch {
	case apierrors.IsForbidden(err):
		c.denied = true
		c.archive.Unread = append(c.archive.Unread, "get pods/log in namespace "+pod.Namespace)
		return
	case err != nil:
		c.leave("%s: %v", name, err)
	}
	if len(text) > 0 {
		c.budget -= len(text)
		c.add(name, fmt.Sprintf("of node %s", cmp.Or(pod.Spec.NodeName, "none")), c.redactor.text(strings.ToValidUTF8(string(text), "?")))
	}
}

// plain is text without characters that would control the terminal of its reader.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r != utf8.RuneError && unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// Archive is the collected files.
type Archive struct {
	// Unread are the rights that were missing.
	Unread []string

	time    time.Time
	files   []file
	left    []string // what is not in the archive, and why
	account bool     // account ids are replaced
}

type file struct {
	name, purpose, text string
}

// Name returns the name of the archive's file. Without its ending, it is the name of the folder in it.
func (a *Archive) Name() string { return a.folder() + ".tar.gz" }

func (a *Archive) folder() string { return "efs-stunnel-" + a.time.UTC().Format("20060102T150405Z") }

// Files returns the names and sizes of all files, the index first.
func (a *Archive) Files() []string {
	var all []string
	for _, f := range a.all() {
		all = append(all, fmt.Sprintf("%-60s %9d", f.name, len(f.text)))
	}
	return all
}

// all files; the index is the first, so that a listing of the archive shows it first.
func (a *Archive) all() []file {
	return append([]file{{"README.txt", "this text", a.index()}}, a.files...)
}

func (a *Archive) index() string {
	var out strings.Builder
	fmt.Fprintf(&out, "State of an installation of efs-stunnel, collected by kubectl efs-stunnel at %s.\n\n", a.time.UTC().Format(time.RFC3339))
	out.WriteString("Secrets were not read. What looks like a credential, by its name or its form, was replaced by " + removed + ".\n" +
		"Annotations of other programs were removed, too. Names of namespaces, claims, nodes and addresses are as they are.\n")
	if a.account {
		out.WriteString("Numbers that may be AWS accounts were replaced by " + removedAccount + ".\n")
	}
	out.WriteString("Read the files before you publish them: not everything that is secret can be recognized.\n\nFiles:\n")
	for _, f := range a.files {
		fmt.Fprintf(&out, "  %-60s %9d bytes  %s\n", f.name, len(f.text), f.purpose)
	}
	out.WriteString("\nNot read, because the right is missing:\n")
	out.WriteString(listed(a.Unread))
	out.WriteString("\nNot collected:\n")
	out.WriteString(listed(a.left))
	return out.String()
}

func listed(lines []string) string {
	if len(lines) == 0 {
		return "  nothing\n"
	}
	return "  " + strings.Join(lines, "\n  ") + "\n"
}

// Write writes the archive as a compressed tar.
func (a *Archive) Write(w io.Writer) error {
	compressed := gzip.NewWriter(w)
	packed := tar.NewWriter(compressed)
	for _, f := range a.all() {
		header := &tar.Header{Name: a.folder() + "/" + f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: a.time, Typeflag: tar.TypeReg}
		if err := packed.WriteHeader(header); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
		if _, err := io.WriteString(packed, f.text); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	return errors.Join(packed.Close(), compressed.Close())
}
