package jobs

import (
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// BenchmarkLook is what one plan for a file system, with the decisions about a whole Job, takes of a
// processor, without the reads and writes that follow. The design allows 50 ms.
func BenchmarkLook(b *testing.B) {
	for name, fill := range map[string]func(loop){
		"20000-claims-wait": func(l loop) {
			for n := range 20_000 {
				add(b, l.gatherer.Caches.Claims.GetStore(), waitingClaim(n))
			}
		},
		"20000-volumes-released": func(l loop) {
			for n := range 20_000 {
				add(b, l.gatherer.Caches.Volumes.GetStore(), releasedVolume(n))
			}
		},
		"5000-volumes-of-one-directory-released": func(l loop) {
			for n := range 5000 {
				volume := releasedVolume(n)
				volume.Annotations[wellknown.AnnotationPath], volume.Spec.NFS.Path = "/team/shared", "/team/shared"
				add(b, l.gatherer.Caches.Volumes.GetStore(), volume)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			l := newLoop(b)
			fill(l)
			for n := range 20_000 {
				l.gatherer.Decide(claimNumber(n))
			}
			began, plans, planned := processorTime(b), 0, 0
			for b.Loop() {
				due := dueOf(b, planFor(ready(l.observe(fileSystem))))
				plans++
				planned += len(l.confirm(due[:l.options.Batch]))
			}
			b.ReportMetric(float64(processorTime(b)-began)/float64(time.Millisecond)/float64(plans), "cpu-ms/op")
			b.ReportMetric(float64(planned)/float64(plans), "operations/op")
		})
	}
}

// processorTime is this process' own: other work on the machine does not count.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
