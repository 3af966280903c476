package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/test/bench/nfsops"
)

// The part tunnel: what a tunnel costs for each operation and each byte, beside NFS without TLS to the same mount
// target. A node of the lab has both mounts at a time, and nfsops works on them in turns.

// tunnelCost has what operations cost with a round trip, through the tunnel and without it.
type tunnelCost struct {
	RoundTrip time.Duration `json:"roundTrip"` // that the mount target adds
	nfsops.Result
}

// addedRoundTrips are none, and those of Amazon EFS: about 1 ms for a read and 2.7 ms for a write.
func addedRoundTrips() []time.Duration {
	return []time.Duration{0, time.Millisecond, 2700 * time.Microsecond}
}

const (
	plainFolder   = "/run/bench-plain"
	nfsopsProgram = "/root/bench-nfsops"
)

func (b *bench) measureTunnel(ctx context.Context) error {
	b.logf("tunnel (load %.1f)", loadNow())
	return b.inLab(ctx, func(l *labVolume) error {
		if err := l.copyProgram(ctx, b.options.nfsops, nfsopsProgram); err != nil {
			return err
		}
		if err := l.mountPlain(ctx); err != nil {
			return err
		}
		for _, roundTrip := range addedRoundTrips() {
			cost, err := l.measureCost(ctx, roundTrip)
			if err != nil {
				return fmt.Errorf("measuring with %s added: %w", roundTrip, err)
			}
			b.logf("  measured with %s added", roundTrip)
			b.results.Tunnel = append(b.results.Tunnel, cost)
		}
		return nil
	})
}

func (l *labVolume) copyProgram(ctx context.Context, from, to string) error {
	program, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("reading the program for nodes, which make bench builds: %w", err)
	}
	l.undo = append(l.undo, l.onNode("rm -f "+to))
	_, err = l.run(ctx, string(program), l.onNode(fmt.Sprintf("cat > %s && chmod 755 %[1]s", to))...)
	return err
}

// mountPlain mounts the volume's directory a second time, with the same options but without the tunnel.
func (l *labVolume) mountPlain(ctx context.Context) error {
	target := l.targets[0]
	l.undo = append(l.undo, plainCommand(target.ID, target.Plain))
	if _, err := l.run(ctx, "", plainCommand(target.ID, true)...); err != nil {
		return err
	}
	options, err := l.kubectl(ctx, "", "get", "pv", l.name, "-o", "jsonpath={.spec.mountOptions}")
	if err != nil {
		return err
	}
	command, err := plainMount(target.Address, l.path, options)
	if err != nil {
		return err
	}
	if _, err := l.run(ctx, "", l.onNode(command)...); err != nil {
		return err
	}
	l.undo = append(l.undo, l.onNode("umount "+plainFolder))
	return nil
}

func plainCommand(target string, plain bool) []string {
	return []string{"efs", "update-mount-target", target, fmt.Sprintf("--plain=%t", plain)}
}

// plainMount returns the command that mounts a path of a mount target without a tunnel. It gives the client another
// host name: the kernel would otherwise recognize the server, and use the tunnel's connection.
func plainMount(address, path, mountOptions string) (string, error) {
	var options []string
	if err := json.Unmarshal([]byte(mountOptions), &options); err != nil {
		return "", fmt.Errorf("reading the options %q: %w", mountOptions, err)
	}
	address, _, _ = strings.Cut(address, ",")
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("reading the address of a mount target: %w", err)
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	kept := []string{"port=" + port}
	for _, option := range options {
		if !strings.HasPrefix(option, "port=") {
			kept = append(kept, option)
		}
	}
	return fmt.Sprintf("mkdir -p %[1]s && unshare --uts sh -c 'echo bench-plain > /proc/sys/kernel/hostname && mount -t nfs4 -o %[2]s %[3]s:%[4]s %[1]s'",
		plainFolder, strings.Join(kept, ","), host, path), nil
}

func (l *labVolume) measureCost(ctx context.Context, roundTrip time.Duration) (cost tunnelCost, err error) {
	cost.RoundTrip = roundTrip
	if err := l.delay(ctx, roundTrip/2); err != nil {
		return cost, err
	}
	output, err := l.run(ctx, "", "exec", l.node, "--", nfsopsProgram, l.folder, plainFolder)
	if err != nil {
		return cost, err
	}
	if err := json.Unmarshal([]byte(output), &cost.Result); err != nil {
		return cost, fmt.Errorf("reading the costs: %w", err)
	}
	return cost, nil
}
