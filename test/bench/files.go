package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker"
)

// What Jobs do with many files, beside the programs that people use for it, on a mount with a latency. Each of
// them has a mount of its own. The other program works on a part of the files, half of it before the Job and
// half after it, so that what else the machine does meets both.

// fileNumbers are how many files, and on which mount.
type fileNumbers struct {
	latency                    time.Duration
	clone, folders, sample     int // files, their directories, and the directories that cp copies
	volumes, volumeFiles, used int // volumes, files of each, and the volumes that du counts
}

// fileWork is what one program did.
type fileWork struct {
	Files    int           `json:"files"`
	Seconds  float64       `json:"seconds"`
	Rate     float64       `json:"rate"` // files a second
	Requests requestCounts `json:"requests"`
	Peak     float64       `json:"peak"` // of its memory, in MiB
}

// and is the work of two runs.
func (w fileWork) and(other fileWork) fileWork {
	sum := fileWork{Files: w.Files + other.Files, Seconds: w.Seconds + other.Seconds, Requests: requestCounts{}, Peak: max(w.Peak, other.Peak)}
	for _, part := range []fileWork{w, other} {
		for name, n := range part.Requests {
			sum.Requests[name] += n
		}
	}
	sum.Rate = float64(sum.Files) / sum.Seconds
	return sum
}

// each is how many requests a file took.
func (w fileWork) each() float64 {
	sum := 0
	for _, n := range w.Requests {
		sum += n
	}
	return float64(sum) / float64(w.Files)
}

// comparison is a Job beside another program.
type comparison struct {
	What       string     `json:"what"`
	Conditions conditions `json:"conditions"`
	Job        fileWork   `json:"job"`
	Peer       fileWork   `json:"peer"`
}

// compare has the other program do its first half, then the Job its work, and the program its second half.
func (b *bench) compare(what string, peer func(half int) (fileWork, error), job func() (fileWork, error)) (c comparison, err error) {
	c = comparison{What: what, Conditions: conditions{Load: loadNow()}}
	before, err := usageNow()
	if err != nil {
		return c, err
	}
	first, err := peer(0)
	if err != nil {
		return c, err
	}
	if c.Job, err = job(); err != nil {
		return c, err
	}
	second, err := peer(1)
	if err != nil {
		return c, err
	}
	c.Peer = first.and(second)
	after, err := usageNow()
	c.Conditions.Others = after.others(before)
	b.logf("  %s: %.0f files/s, the other program %.0f files/s", what, c.Job.Rate, c.Peer.Rate)
	return c, err
}

// inScratch has something done with an empty folder.
func (b *bench) inScratch(do func(folder string) error) error {
	folder, err := os.MkdirTemp(b.options.scratch, "efs-stunnel-bench-")
	if err != nil {
		return err
	}
	return errors.Join(do(folder), os.RemoveAll(folder))
}

// atLatency runs a command on a mount of the folder, with nothing else on it.
func (b *bench) atLatency(ctx context.Context, folder string, attributes bool, files int, command func(on string) []string) (w fileWork, output []byte, err error) {
	w.Files = files
	w.Requests, err = onSlowMount(folder, b.options.files.latency, attributes, func(on string) error {
		begun := time.Now()
		output, w.Peak, err = runMeasured(ctx, command(on))
		w.Seconds = time.Since(begun).Seconds()
		return err
	})
	w.Rate = float64(files) / w.Seconds
	return w, output, err
}

// memoryInterval is the time between two looks at a program's memory, of which the kernel keeps the peak.
const memoryInterval = 200 * time.Millisecond

// runMeasured runs a command, and returns what it wrote and its peak of memory.
func runMeasured(ctx context.Context, command []string) (output []byte, peak float64, err error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ticker := time.NewTicker(memoryInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				err = fmt.Errorf("%s: %w\n%s", cmd, err, &stderr)
			}
			return stdout.Bytes(), peak, err
		case <-ticker.C:
			if used, err := memoryOf(cmd.Process.Pid); err == nil { // it may have ended just now
				peak = max(peak, used.Peak)
			}
		}
	}
}

// jobArgument, as the first one, makes this program what a Job runs.
const jobArgument = "mountjob"

// runJob is mountjob on a mount that is none of NFS.
func runJob(ctx context.Context, args []string) error {
	program := worker.Program{
		Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Now: time.Now,
		CheckMount: func(string) error { return nil },
	}
	if code := program.Run(ctx, args); code != 0 {
		return fmt.Errorf("mountjob ended with %d", code)
	}
	return nil
}

func jobCommand(command, on, report string, more ...string) []string {
	return append([]string{
		os.Args[0], jobArgument, command, "--file-system-id=" + fileSystemID, "--directory=" + on, "--deadline=24h", "--termination-log=" + report,
	}, more...)
}

// measureClone copies a volume, and a part of it with cp.
func (b *bench) measureClone(ctx context.Context) error {
	n := b.options.files
	b.logf("clone of %d files in %d directories, %s away", n.clone, n.folders, n.latency)
	return b.inScratch(func(folder string) error {
		source := benchOwner("source")
		if err := makeVolumes(ctx, folder, source); err != nil {
			return err
		}
		if err := makeFiles(filepath.Join(folder, volumePath("source")), n.folders, n.clone/n.folders, "small"); err != nil {
			return err
		}
		result, err := b.compare("clone", func(half int) (fileWork, error) { return b.copyPart(ctx, folder, half) },
			func() (fileWork, error) { return b.cloneWhole(ctx, folder, source) })
		if err != nil {
			return err
		}
		b.results.Clone = &result
		return nil
	})
}

// copyPart has cp copy a half of its directories.
func (b *bench) copyPart(ctx context.Context, folder string, half int) (fileWork, error) {
	n := b.options.files
	into := "part-" + strconv.Itoa(half)
	if err := os.Mkdir(filepath.Join(folder, into), 0o755); err != nil {
		return fileWork{}, err
	}
	each := n.sample / 2
	w, _, err := b.atLatency(ctx, folder, false, each*(n.clone/n.folders+1), func(on string) []string {
		command := []string{"cp", "-a"}
		for i := range each {
			command = append(command, filepath.Join(on, volumePath("source"), strconv.Itoa(half*each+i)))
		}
		return append(command, filepath.Join(on, into))
	})
	return w, err
}

func cloneOperation(source operations.Owner) operations.Operation {
	return operations.Operation{
		Kind: operations.Clone, Owner: benchOwner("copy"), Path: volumePath("copy"),
		Source: operations.Source{SourcePath: volumePath("source"), SourceVolume: source.Volume, SourceClaim: source.Claim, SourceClaimUID: source.ClaimUID},
	}
}

func (b *bench) cloneWhole(ctx context.Context, folder string, source operations.Owner) (fileWork, error) {
	text, err := operations.Encode([]operations.Operation{cloneOperation(source)})
	if err != nil {
		return fileWork{}, err
	}
	file, report := filepath.Join(folder, "operations.json"), filepath.Join(folder, "report")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fileWork{}, err
	}
	n := b.options.files
	w, _, err := b.atLatency(ctx, folder, false, n.clone+n.folders, func(on string) []string {
		return jobCommand("clone", on, report, "--operations="+file)
	})
	return w, err
}

// measureSurveys counts volumes, and some of them with du: when each file's attributes are a request, and when
// they come with the names.
func (b *bench) measureSurveys(ctx context.Context) error {
	n := b.options.files
	b.logf("survey of %d volumes of %d files, %s away", n.volumes, n.volumeFiles, n.latency)
	return b.inScratch(func(folder string) error {
		var owners []operations.Owner
		for i := range n.volumes {
			owners = append(owners, benchOwner(volumeName(i)))
		}
		if err := makeVolumes(ctx, folder, owners...); err != nil {
			return err
		}
		for i := range n.volumes {
			if err := makeFiles(filepath.Join(folder, volumePath(volumeName(i))), 0, n.volumeFiles, ""); err != nil {
				return err
			}
		}
		for _, attributes := range []bool{false, true} {
			what := "survey, a request for each file"
			if attributes {
				what = "survey, attributes with the names"
			}
			result, err := b.compare(what, func(half int) (fileWork, error) { return b.countPart(ctx, folder, attributes, half) },
				func() (fileWork, error) { return b.surveyAll(ctx, folder, attributes) })
			if err != nil {
				return err
			}
			b.results.Surveys = append(b.results.Surveys, result)
		}
		return nil
	})
}

// countPart has du count a half of its volumes.
func (b *bench) countPart(ctx context.Context, folder string, attributes bool, half int) (fileWork, error) {
	n := b.options.files
	each := n.used / 2
	w, _, err := b.atLatency(ctx, folder, attributes, each*(n.volumeFiles+1), func(on string) []string {
		command := []string{"du", "-s"}
		for i := range each {
			command = append(command, filepath.Join(on, volumePath(volumeName(half*each+i))))
		}
		return command
	})
	return w, err
}

// surveyAll fails if the survey counts anything else than there is.
func (b *bench) surveyAll(ctx context.Context, folder string, attributes bool) (fileWork, error) {
	n := b.options.files
	files := n.volumes * (n.volumeFiles + 1)
	w, output, err := b.atLatency(ctx, folder, attributes, files, func(on string) []string {
		return jobCommand("survey", on, filepath.Join(folder, "report"))
	})
	if err != nil {
		return w, err
	}
	counted := 0
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		usage, err := operations.DecodeUsage(lines.Bytes())
		if err != nil {
			return w, err
		}
		counted += int(usage.Files)
	}
	if counted != files {
		return w, fmt.Errorf("the survey counted %d files, there are %d", counted, files)
	}
	return w, nil
}

func volumeName(i int) string { return fmt.Sprintf("v%04d", i) }

func volumePath(volume string) string { return "/" + team + "/" + volume }

func benchOwner(volume string) operations.Owner {
	return operations.Owner{Volume: volume, Cluster: "bench", Namespace: team, Claim: volume, ClaimUID: "uid-" + volume}
}

// makeVolumes makes directories of volumes, as mount Jobs do.
func makeVolumes(ctx context.Context, folder string, owners ...operations.Owner) error {
	var ops []operations.Operation
	for _, owner := range owners {
		ops = append(ops, operations.Operation{Kind: operations.Setup, Path: volumePath(owner.Volume), Owner: owner, Directory: operations.Directory{Mode: "0777"}})
	}
	return setUp(ctx, folder, ops)
}

// makeFiles makes files in a folder, or as many in each of some folders in it. They belong to a user, as a
// pod's do.
func makeFiles(folder string, folders, files int, content string) error {
	for i := range folders {
		below := filepath.Join(folder, strconv.Itoa(i))
		if err := os.Mkdir(below, 0o755); err != nil {
			return err
		}
		if err := makeFiles(below, 0, files, content); err != nil {
			return err
		}
	}
	if folders > 0 {
		return nil
	}
	for i := range files {
		file := filepath.Join(folder, "file-"+strconv.Itoa(i))
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return err
		}
		if err := os.Chown(file, fileUser, fileUser); err != nil {
			return err
		}
	}
	return nil
}

// fileUser is whose files are copied and counted.
const fileUser = 1000
