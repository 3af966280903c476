// Command bench measures how fast the manager is, and how few requests it makes, on a real
// apiserver with the cluster's own controllers, beside the library that most provisioners are
// made with. docs/contribute/benchmarks.md says what the numbers mean. It runs on Linux, as root.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/test/integration/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == peerArgument {
		return runPeer(ctx, args[1:])
	}
	if len(args) > 0 && args[0] == jobArgument {
		return runJob(ctx, args[1:])
	}
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	b := &bench{options: o, progress: stderr}
	b.results.Machine = thisMachine()
	b.results.Began = time.Now().UTC().Truncate(time.Second)
	if err := b.measure(ctx); err != nil {
		return err
	}
	if err := b.results.writeTable(stdout); err != nil {
		return err
	}
	return b.results.writeJSON(o.json)
}

// options are what is measured, and with what.
type options struct {
	programs, manager string
	json, profiles    string
	scratch           string
	parts             []string
	claims            int
	slowClaims        int
	binderQPS         int
	rounds            int
	alone, warm       int
	stream            int
	volumes           int
	idle              time.Duration
	takeovers         int
	library           bool
	scale             scaleNumbers
	manifest          string
	policy            string
	churnRate         float64
	churnDeadline     time.Duration
	files             fileNumbers
	lab               string // the program bin/lab
	nfsops            string // the program that measures on a node
}

// The parts of a run.
const (
	partAlone    = "alone"
	partBurst    = "burst"
	partStream   = "stream"
	partIdle     = "idle"
	partTakeover = "takeover"
	partScale    = "scale"
	partChurn    = "churn"
	partBinding  = "binding"
	partClone    = "clone"
	partSurvey   = "survey"

	partReadAhead = "readahead"
	partTunnel    = "tunnel"
)

func parseOptions(args []string, stderr io.Writer) (options, error) {
	o := options{}
	usual := []string{partAlone, partBurst, partStream, partTakeover, partIdle}
	all := append(slices.Clone(usual), partScale, partChurn, partBinding, partClone, partSurvey, partReadAhead, partTunnel) // which take long, or have nothing to do with the manager
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.programs, "programs", os.Getenv(cluster.ProgramsEnv), "`folder` with etcd, kube-apiserver and kube-controller-manager")
	flags.StringVar(&o.manager, "manager", "", "`file` of the manager's program")
	flags.StringVar(&o.json, "json", "", "`file` for the results as JSON")
	flags.StringVar(&o.profiles, "profiles", "", "`folder` for CPU profiles of the manager in bursts; none without")
	flags.StringVar(&o.scratch, "scratch", "/dev/shm", "`folder` for file systems; in memory, because no disk is measured")
	parts := flags.String("parts", strings.Join(usual, ","), "comma-separated `parts` to measure, of "+strings.Join(all, ","))
	flags.IntVar(&o.claims, "claims", 1000, "`number` of claims in a burst")
	flags.IntVar(&o.slowClaims, "slow-claims", 200, "`number` of claims for the library with client-go's default limits, which would take long for more")
	flags.IntVar(&o.binderQPS, "controller-manager-qps", cluster.Fast, "`number` of requests that the controller-manager may make in a second; without, the machine is its limit")
	flags.IntVar(&o.rounds, "rounds", 3, "`number` of bursts of each of the others, of which the median one counts")
	flags.IntVar(&o.alone, "alone", 10, "`number` of single claims that each wait for a pod")
	flags.IntVar(&o.warm, "warm", 100, "`number` of single claims that a waiting worker serves")
	flags.IntVar(&o.stream, "stream", 100, "`number` of claims in a stream, one each "+streamPace.String())
	flags.IntVar(&o.volumes, "volumes", 10000, "`number` of bound volumes of an idle manager")
	flags.DurationVar(&o.idle, "idle", 3*time.Minute, "`time` for which an idle manager's requests are counted")
	flags.IntVar(&o.takeovers, "takeovers", 3, "`number` of takeovers of each kind")
	flags.BoolVar(&o.library, "library", true, "measure the library, too")
	flags.IntVar(&o.scale.volumes, "scale-volumes", 50000, "`number` of bound volumes in the parts scale and churn")
	flags.IntVar(&o.scale.shared, "scale-shared", 5000, "`number` of them that share a directory and are deleted at once")
	flags.IntVar(&o.scale.mass, "scale-mass", 20000, "`number` of the others that are deleted at once")
	flags.IntVar(&o.scale.served, "scale-served", 1000, "`number` of claims that come and go, alone and beside those that wait")
	flags.IntVar(&o.scale.waiting, "scale-waiting", 20000, "`number` of claims of the manager's own that wait for a file system")
	flags.IntVar(&o.scale.standby, "scale-standby", 100000, "`number` of claims of another provisioner that come and go beside a standby")
	flags.StringVar(&o.manifest, "manifest", "deploy/kustomize/base/manager.yaml", "`file` with the manager's Deployment, for its limit of memory")
	flags.StringVar(&o.policy, "policy", "deploy/kustomize/components/fast-binding/policy.yaml", "`file` with the policy that annotates claims in the part binding")
	flags.Float64Var(&o.churnRate, "churn-rate", 10, "`number` of claims of another provisioner that are deleted each second of the part churn")
	flags.DurationVar(&o.churnDeadline, "churn-deadline", 5*time.Minute, "`time` that a new leader has to begin in the part churn")
	flags.DurationVar(&o.files.latency, "latency", 5*time.Millisecond, "`time` after which a request is answered in the parts clone and survey")
	flags.IntVar(&o.files.clone, "clone-files", 50000, "`number` of files of the volume that is cloned")
	flags.IntVar(&o.files.folders, "clone-directories", 500, "`number` of directories with these files")
	flags.IntVar(&o.files.sample, "cp-directories", 20, "`number` of them that cp copies, too")
	flags.IntVar(&o.files.volumes, "survey-volumes", 1000, "`number` of volumes that a survey counts")
	flags.IntVar(&o.files.volumeFiles, "survey-files", 1000, "`number` of files of each")
	flags.IntVar(&o.files.used, "du-volumes", 20, "`number` of them that du counts, too")
	flags.StringVar(&o.lab, "lab", "bin/lab", "`program` of the lab in which the parts readahead and tunnel measure")
	flags.StringVar(&o.nfsops, "nfsops", "bin/nfsops", "`program` that a node of the lab runs in the part tunnel")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.parts = strings.Split(*parts, ",")
	return o, o.check(all, flags.NArg())
}

func (o options) check(parts []string, rest int) error {
	for _, part := range o.parts {
		if !slices.Contains(parts, part) {
			return fmt.Errorf("-parts: %q is none of %s", part, strings.Join(parts, ","))
		}
	}
	switch {
	case rest > 0:
		return errors.New("there are arguments that are no flags")
	case o.needsCluster() && (o.programs == "" || o.manager == ""):
		return errors.New("-programs and -manager are needed; make bench has them")
	case o.churnRate <= 0 || o.churnDeadline <= 0 || o.scale.shared+o.scale.mass > o.scale.volumes:
		return errors.New("-churn-rate and -churn-deadline must be above 0, -scale-shared and -scale-mass together at most -scale-volumes")
	case min(o.claims, o.slowClaims, o.binderQPS, o.rounds, o.alone, o.warm, o.stream, o.volumes, o.takeovers, o.scale.shared, o.scale.mass, o.scale.served, o.scale.waiting, o.scale.standby) < 1:
		return errors.New("every number must be at least 1")
	case o.files.latency <= 0:
		return errors.New("-latency must be above 0")
	case o.files.folders < 1 || o.files.clone%o.files.folders != 0 || o.files.sample < 2 || o.files.sample > o.files.folders:
		return errors.New("-clone-files must be a multiple of -clone-directories, and -cp-directories from 2 to -clone-directories")
	case o.files.volumeFiles < 1 || o.files.used < 2 || o.files.used > o.files.volumes:
		return errors.New("-survey-files must be at least 1, and -du-volumes from 2 to -survey-volumes")
	case os.Getuid() != 0:
		return errors.New("mountjob gives directories to other users: run this as root")
	}
	return nil
}

// needsCluster reports whether a part is of the manager.
func (o options) needsCluster() bool {
	others := []string{partClone, partSurvey, partReadAhead, partTunnel}
	return slices.ContainsFunc(o.parts, func(part string) bool { return !slices.Contains(others, part) })
}

// bench is one run.
type bench struct {
	options  options
	progress io.Writer
	results  results
}

func (b *bench) logf(format string, args ...any) { fmt.Fprintf(b.progress, format+"\n", args...) }

// Limits that are compared.
func defaultLimits() limits  { return limits{200, 300} }
func raisedLimits() limits   { return limits{1000, 2000} }
func clientGoLimits() limits { return limits{5, 10} }

// libraryThreads is the library's own default.
const libraryThreads = 4

func (b *bench) measure(ctx context.Context) error {
	parts := map[string]func(context.Context) error{
		partAlone: b.measureSingles, partBurst: b.measureBursts, partStream: b.measureStreams, partIdle: b.measureIdle, partTakeover: b.measureTakeovers,
		partScale: b.measureScale, partChurn: b.measureChurn, partBinding: b.measureBinding,
		partClone: b.measureClone, partSurvey: b.measureSurveys,
		partReadAhead: b.measureReadAhead, partTunnel: b.measureTunnel,
	}
	for _, part := range b.options.parts {
		if err := parts[part](ctx); err != nil {
			return fmt.Errorf("measuring %s: %w", part, err)
		}
	}
	return nil
}

func (b *bench) measureSingles(ctx context.Context) error {
	for _, c := range b.wanted(b.withoutWorkers(defaultLimits()), b.ours(defaultLimits()), b.peer(raisedLimits(), managerWorkers, b.options.alone)) {
		n := b.options.alone
		if c.linger > 0 {
			n = b.options.warm
		}
		result, err := b.measureAlone(ctx, c, n)
		if err != nil {
			return err
		}
		b.results.Alone = append(b.results.Alone, result)
	}
	return nil
}

// wanted leaves the library out when it is not asked for.
func (b *bench) wanted(all ...contender) []contender {
	return slices.DeleteFunc(all, func(c contender) bool { return c.name == libraryName && !b.options.library })
}

// measures reports whether a part is to be measured.
func (b *bench) measures(part string) bool { return slices.Contains(b.options.parts, part) }

// measureBursts has each round measure all, so that what else the machine does meets them alike.
func (b *bench) measureBursts(ctx context.Context) error {
	all := b.wanted(
		b.ours(defaultLimits()), b.peer(defaultLimits(), managerWorkers, b.options.claims), b.peerWithFinalizer(defaultLimits()),
		b.ours(raisedLimits()), b.oursWarm(raisedLimits()), b.peer(raisedLimits(), managerWorkers, b.options.claims), b.peerWithFinalizer(raisedLimits()),
		b.peer(raisedLimits(), libraryThreads, b.options.claims),
		b.peer(clientGoLimits(), libraryThreads, b.options.slowClaims),
	)
	for round := range b.options.rounds {
		limit, err := b.measureCeiling(ctx)
		if err != nil {
			return err
		}
		b.results.Ceilings = append(b.results.Ceilings, limit)
		for _, c := range all {
			if round > 0 && c.limits == clientGoLimits() {
				continue // it takes minutes, and the limit alone decides
			}
			result, err := b.measureBurst(ctx, c)
			if err != nil {
				return err
			}
			b.results.Bursts = append(b.results.Bursts, result)
		}
	}
	return nil
}

// onTestbed measures in a cluster of its own, so that nothing is left of what was measured before.
func (b *bench) onTestbed(ctx context.Context, what string, c contender, under *conditions, measure func(context.Context, *testbed) error) (err error) {
	under.Load = loadNow()
	b.logf("%s (load %.1f)", what, under.Load)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	bed, err := newTestbed(ctx, b.options, fail)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.stop()) }()
	if err := bed.makeClass(ctx, c.provisioner); err != nil {
		return err
	}
	if c.policy != "" {
		if err := bed.createPolicy(ctx, c.policy); err != nil {
			return err
		}
	}
	before, err := usageNow()
	if err != nil {
		return err
	}
	if err := measure(ctx, bed); err != nil {
		return err
	}
	after, err := usageNow()
	under.Others = after.others(before)
	return err
}

func (r results) writeJSON(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
