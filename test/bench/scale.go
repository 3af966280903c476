package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// scale is what a large cluster costs a contender that has one processor.
type scale struct {
	Contender  string     `json:"contender"`
	Case       string     `json:"case"`
	Volumes    int        `json:"volumes"` // in the cluster
	Number     int        `json:"number"`  // of claims that the case is about
	Conditions conditions `json:"conditions"`
	Seconds    float64    `json:"seconds"` // until all are served
	Processor  float64    `json:"processorSeconds"`
	Memory     memory     `json:"memoryMiB"`
	// Limit is that of the manager's manifest. It is compared and not enforced, so that a run
	// shows by how much it is passed.
	Limit float64 `json:"memoryLimitMiB"`
	Jobs  []job   `json:"mountJobs,omitempty"`
}

// Cases of scale.
const (
	caseVolumes = "bound volumes: started, one claim bound and deleted"
	caseShared  = "claims of one directory deleted at once"
	caseMass    = "claims deleted at once"
	caseServed  = "claims created, bound and deleted at once"
	caseStandby = "claims of another provisioner come and go beside a standby"
)

// scaleNumbers are how large the cases are.
type scaleNumbers struct{ volumes, shared, mass, served, waiting, standby int }

func (b *bench) measureScale(ctx context.Context) error {
	limit, environment, err := shippedLimits(b.options.manifest)
	if err != nil {
		return err
	}
	for _, c := range b.wanted(b.ours(defaultLimits()), b.peerWithFinalizer(raisedLimits())) {
		// One processor for the program that is measured, and for the manager what its manifest sets.
		c.environment = append(c.environment, "GOMAXPROCS=1")
		if c.name == managerName {
			c.environment = append(c.environment, environment...)
		}
		if err := b.measureScaleOf(ctx, c, limit); err != nil {
			return err
		}
	}
	return nil
}

// measureScaleOf fills one cluster for all cases, and for the part churn.
func (b *bench) measureScaleOf(ctx context.Context, c contender, limit float64) error {
	n := b.options.scale
	under := conditions{}
	var done []scale
	what := fmt.Sprintf("%d volumes, of which %d share a directory, %s", n.volumes, n.shared, c.name)
	err := b.onTestbed(ctx, what, c, &under, func(ctx context.Context, bed *testbed) (err error) {
		made, err := b.fillLarge(ctx, bed, c)
		if err != nil {
			return err
		}
		if c.name == managerName {
			if err := bed.makeDirectories(ctx, made); err != nil {
				return err
			}
		}
		done, err = b.measureScaleIn(ctx, bed, c, limit)
		return err
	})
	for i := range done {
		done[i].Conditions = under
	}
	b.results.Scales = append(b.results.Scales, done...)
	if c.name == managerName && b.results.Churn != nil {
		b.results.Churn.Conditions = under
	}
	return err
}

// measureScaleIn begins with what leaves the volumes of the cluster.
func (b *bench) measureScaleIn(ctx context.Context, bed *testbed, c contender, limit float64) (done []scale, err error) {
	n := b.options.scale
	own, shared := n.claims()
	measure := func(s scale, work func(context.Context) error) error {
		s.Contender, s.Limit = c.name, limit
		begin := time.Now()
		if err := bed.with(ctx, c, func(p *program) error { return s.measure(ctx, p, work) }); err != nil {
			return fmt.Errorf("%s: %w", s.Case, err)
		}
		s.Jobs = bed.jobsSince(begin)
		b.logScale(s)
		done = append(done, s)
		return nil
	}
	err = measure(scale{Case: caseVolumes, Number: 1, Volumes: n.volumes}, func(ctx context.Context) error { return bed.createAndDelete(ctx, "probe") })
	if err != nil {
		return done, err
	}
	if c.name == managerName && b.measures(partChurn) {
		if err := b.measureChurnIn(ctx, bed); err != nil {
			return done, fmt.Errorf("%s: %w", partChurn, err)
		}
	}
	err = measure(scale{Case: caseShared, Number: n.shared, Volumes: n.volumes}, func(ctx context.Context) error { return bed.deleteAll(ctx, shared) })
	if err != nil {
		return done, err
	}
	left := n.volumes - n.shared
	err = measure(scale{Case: caseMass, Number: n.mass, Volumes: left}, func(ctx context.Context) error { return bed.deleteAll(ctx, own[:n.mass]) })
	if err != nil {
		return done, err
	}
	if c.name == managerName {
		if err := bed.measureWaiting(ctx, c, n, func(s scale, work func(context.Context) error) error {
			s.Number, s.Volumes = n.served, left-n.mass
			return measure(s, work)
		}); err != nil {
			return done, err
		}
	}
	s, err := bed.measureStandby(ctx, c, n.standby)
	s.Volumes, s.Limit = left-n.mass, limit
	b.logScale(s)
	return append(done, s), err
}

func (b *bench) logScale(s scale) {
	b.logf("  %d %s: %.0f s, %.1f s of a processor, peak %.0f MiB of %.0f", s.Number, s.Case, s.Seconds, s.Processor, s.Memory.Peak, s.Limit)
}

// claims are those that have a directory each, and those that share one.
func (n scaleNumbers) claims() (own, shared []string) {
	return names("own", n.volumes-n.shared), names("shared", n.shared)
}

// fillLarge makes the volumes of the parts scale and churn.
func (b *bench) fillLarge(ctx context.Context, bed *testbed, c contender) ([]*corev1.PersistentVolume, error) {
	if err := bed.makeClassOf(ctx, otherClass, noProvisioner, nil); err != nil {
		return nil, err
	}
	own, shared := b.options.scale.claims()
	volumeName := "shared"
	if c.name != managerName {
		volumeName = "" // the library knows no such thing, and its binder would not bind
	}
	return b.fill(ctx, bed, c, batch{claims: own}, batch{claims: shared, volumeName: volumeName})
}

// measure has a program do something and waits until it has nothing more to do.
func (s *scale) measure(ctx context.Context, p *program, work func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseDeadline, fmt.Errorf("it takes more than %s", phaseDeadline))
	defer cancel()
	begin := time.Now()
	if err := work(ctx); err != nil {
		return err
	}
	s.Seconds = time.Since(begin).Seconds()
	if _, err := settled(ctx, p.address, shortQuietTime); err != nil {
		return err
	}
	var err error
	s.Memory, s.Processor, err = costOf(p.cmd.Process.Pid)
	return err
}

// costOf is what a process has taken since its start.
func costOf(pid int) (m memory, processor float64, err error) {
	if m, err = memoryOf(pid); err != nil {
		return m, 0, err
	}
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return m, 0, err
	}
	stat, err := proc.Stat()
	return m, stat.CPUTime(), err
}

func (bed *testbed) deleteAll(ctx context.Context, claims []string) error {
	if err := each(ctx, claims, bed.deleteClaim); err != nil {
		return err
	}
	_, err := bed.await(ctx, "all volumes are gone", claims, isGone)
	return err
}

// createAndDelete has claims provisioned and deleted.
func (bed *testbed) createAndDelete(ctx context.Context, claims ...string) error {
	if err := each(ctx, claims, bed.createClaim); err != nil {
		return err
	}
	if _, err := bed.await(ctx, fmt.Sprintf("claims from %s on are bound", claims[0]), claims, isBound); err != nil {
		return err
	}
	return bed.deleteAll(ctx, claims)
}

// waitingClass is a class of the contender whose claims wait for a file system that does not come.
const waitingClass = "waiting"

// measureWaiting has claims come and go, alone and beside many that wait: while those are told so for the first
// time, and once they were.
func (bed *testbed) measureWaiting(ctx context.Context, c contender, n scaleNumbers, measure func(scale, func(context.Context) error) error) error {
	err := measure(scale{Case: caseServed}, func(ctx context.Context) error { return bed.createAndDelete(ctx, names("alone", n.served)...) })
	if err != nil {
		return err
	}
	parameters := map[string]string{"default_file_system_id": "fs-0000000000000000f"}
	if err := bed.makeClassOf(ctx, waitingClass, c.provisioner, parameters); err != nil {
		return err
	}
	waiting := names("waiting", n.waiting)
	if err := each(ctx, waiting, func(ctx context.Context, name string) error {
		_, err := bed.createClaimFor(ctx, name, waitingClass, "")
		return err
	}); err != nil {
		return err
	}
	for _, when := range []string{"begin to wait", "wait"} {
		claims := names("beside-those-that-"+strings.ReplaceAll(when, " ", "-"), n.served)
		err = measure(scale{Case: fmt.Sprintf("%s beside %d that %s", caseServed, n.waiting, when)}, func(ctx context.Context) error {
			return bed.createAndDelete(ctx, claims...)
		})
		if err != nil {
			return err
		}
	}
	return each(ctx, waiting, bed.deleteClaim)
}

// otherClass is a class for which no program provisions.
const otherClass = "other"

// measureStandby has claims of another provisioner come and go, as ephemeral volumes do all day,
// and gives what that costs a replica that does not lead.
func (bed *testbed) measureStandby(ctx context.Context, c contender, n int) (s scale, err error) {
	s = scale{Contender: c.name, Case: caseStandby, Number: n}
	pair := &pair{testbed: bed, contender: c, lease: usualLease()}
	defer func() { err = errors.Join(err, pair.end()) }()
	if pair.leader, err = bed.start(ctx, c, pair.lease); err != nil {
		return s, err
	}
	if err := pair.addStandby(ctx); err != nil {
		return s, err
	}
	return s, s.measure(ctx, pair.standby, func(ctx context.Context) error {
		return each(ctx, names("other", n), bed.createAndDeleteOther)
	})
}

// createAndDeleteOther creates and deletes a claim of another provisioner.
func (bed *testbed) createAndDeleteOther(ctx context.Context, name string) error {
	if _, err := bed.createClaimFor(ctx, name, otherClass, ""); err != nil {
		return err
	}
	return bed.deleteClaim(ctx, name)
}

// shippedLimits are the memory in MiB that the manifest allows the manager, and the environment
// which it passes to Go.
func shippedLimits(manifest string) (limit float64, environment []string, err error) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return 0, nil, err
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var deployment appsv1.Deployment
		if err := yaml.Unmarshal([]byte(document), &deployment); err != nil {
			return 0, nil, fmt.Errorf("reading %s: %w", manifest, err)
		}
		if containers := deployment.Spec.Template.Spec.Containers; deployment.Kind == "Deployment" && len(containers) == 1 {
			memory := containers[0].Resources.Limits.Memory()
			return float64(memory.Value()) / (1 << 20), goEnvironment(containers[0], memory.Value()), nil
		}
	}
	return 0, nil, fmt.Errorf("%s has no Deployment with one container", manifest)
}

func goEnvironment(container corev1.Container, limit int64) (environment []string) {
	for _, variable := range container.Env {
		value := variable.Value
		if from := variable.ValueFrom; from != nil && from.ResourceFieldRef != nil && from.ResourceFieldRef.Resource == "limits.memory" {
			value = fmt.Sprint(limit)
		}
		if strings.HasPrefix(variable.Name, "GO") && value != "" {
			environment = append(environment, variable.Name+"="+value)
		}
	}
	return environment
}
