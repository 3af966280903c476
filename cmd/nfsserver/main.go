// Command nfsserver serves a disk over NFSv4 and TLS, for clusters without EFS. It runs NFS-Ganesha and
// stunnel as its children, and needs neither a token nor the Kubernetes API:
//
//	nfsserver          serves
//	nfsserver version  prints its version
//	nfsserver ready    asks the running server whether it is ready, for the kubelet
//	nfsserver quotas   writes whether the disk can enforce sizes to its termination message, for the manager
//	nfsserver launch   replaces itself by one of its children
//
// Exit code 0 means that it was asked to end; 1 that the disk cannot be exported, or that a port is in use;
// 2 that the settings are invalid.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
	"gnuthought.com/efs-stunnel/pkg/server"
	"gnuthought.com/efs-stunnel/pkg/server/quota"
)

const readyCommand, quotasCommand = "ready", "quotas"

// readyTimeout is less than timeoutSeconds of the probe.
const readyTimeout = 4 * time.Second

// Limits of --grace-period. The kernel's client renews its lease after two thirds of it.
const minGrace, maxGrace = 10 * time.Second, 10 * time.Minute

func main() { os.Exit(run(program.Context(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) }

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	switch {
	case len(args) > 0 && args[0] == server.LaunchCommand:
		fmt.Fprintln(stderr, "nfsserver:", server.Launch(args[1:]))
		return program.ExitFailed
	case len(args) == 1 && args[0] == "version":
		fmt.Fprintln(stdout, buildinfo.Read())
		return program.ExitDone
	}
	command := ""
	if len(args) > 0 && slices.Contains([]string{readyCommand, quotasCommand}, args[0]) {
		command, args = args[0], args[1:]
	}
	o, set, err := parseOptions(args, getenv)
	if err != nil {
		return program.ExitWithout(set, err, "  nfsserver [flags]\n  nfsserver ready [--http-address host:port]\n  nfsserver quotas [--data folder]\n  nfsserver version\n", stdout, stderr)
	}
	switch command {
	case readyCommand:
		return askReady(o.HTTP.Address, stdout)
	case quotasCommand:
		return sayQuotas(o.Data, "/dev/termination-log", stderr)
	}
	lines := logging.NewLossy(stderr)
	defer lines.Close()
	log := o.log.New(lines)
	log.Info("NFS server starts", "version", buildinfo.Read().String())
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o.Log, o.Metrics, o.HTTP.Metrics = log, registry, registry
	if err := server.Run(ctx, o.Options); err != nil {
		log.Error("NFS server ends because of an error", "err", err)
		return program.ExitFailed
	}
	log.Info("NFS server ends")
	return program.ExitDone
}

// askReady prints why a server is not ready. The kubelet records it in an event of the pod.
func askReady(address string, stdout io.Writer) int {
	client := http.Client{Transport: &http.Transport{}, Timeout: readyTimeout} // never through a proxy
	response, err := client.Get("http://" + address + "/readyz")               //nolint:noctx // it has a timeout
	if err != nil {
		fmt.Fprintln(stdout, err)
		return program.ExitFailed
	}
	defer response.Body.Close()
	if _, err := io.Copy(stdout, response.Body); err != nil || response.StatusCode != http.StatusOK {
		return program.ExitFailed
	}
	return program.ExitDone
}

// sayQuotas writes whether the disk can enforce sizes. It fails only if it cannot say it: the server serves either way.
func sayQuotas(data, path string, stderr io.Writer) int {
	said := wellknown.QuotasEnforced
	if err := quota.Check(data); err != nil {
		said = err.Error()
	}
	if err := os.WriteFile(path, []byte(said), 0o644); err != nil {
		fmt.Fprintln(stderr, "nfsserver: writing the termination message:", err)
		return program.ExitFailed
	}
	return program.ExitDone
}

// options are checked settings.
type options struct {
	server.Options
	log program.Log
}

func parseOptions(args []string, getenv func(string) string) (options, *settings.Set, error) {
	o := options{Options: server.Options{
		Data: "/data", Certificates: "/etc/efs-stunnel/server", Listen: fmt.Sprintf(":%d", wellknown.NFSPort),
		GaneshaPort: 12049, GracePeriod: time.Minute, ClientCertificates: true,
		HTTP: httpserver.Options{Address: ":8080"},
	}}
	set := settings.New("nfsserver")
	disk := set.Group("Disk")
	disk.Add(settings.Text(&o.Data, "folder", checkFolder), "data", "",
		"`folder` where the disk is mounted; clients see its folder export, and locks are recalled in its folder recovery")
	disk.Add(settings.Bool(&o.SharedFileSystem), "shared-file-system", "",
		"serve although the folder is not the root of a file system of its own; clients that make up handles reach every file of that file system")
	disk.Add(settings.Bool(&o.Quotas), "quotas", "",
		"enforce the sizes of volumes, on an xfs that is mounted with prjquota; needs the capability SYS_ADMIN")
	clients := set.Group("Clients")
	clients.Add(settings.Text(&o.Listen, "host:port", settings.CheckAddress), "listen", "",
		"`host:port` for clients, NFSv4 through TLS; no host is all addresses")
	clients.Add(settings.Text(&o.Certificates, "folder", checkFolder), "certificate-directory", "",
		"`folder` with tls.crt and tls.key of the server, and ca.crt, from which clients' certificates must come; read again when they change")
	clients.Add(settings.Bool(&o.ClientCertificates), "client-certificates", "", "require certificates of clients")
	clients.Add(settings.Duration(&o.GracePeriod, minGrace, maxGrace), "grace-period", "",
		"`time` after which the locks of a silent client end, and in which clients reclaim theirs after a restart")
	clients.Rare().Add(settings.Integer(&o.GaneshaPort, wellknown.MinPort, wellknown.MaxPort), "ganesha-port", "",
		"port of NFS-Ganesha on the loopback, for pods on the host's network")
	observation := set.Group("Logs, health and metrics")
	observation.Add(settings.Text(&o.HTTP.Address, "host:port", settings.CheckAddress), "http-address", "",
		"`host:port` of /healthz, /readyz and /metrics; no host is all addresses")
	o.log.Add(observation)
	err := set.Parse(args, getenv)
	if err == nil && o.Quotas && o.SharedFileSystem {
		err = errors.New("--quotas and --shared-file-system exclude each other: quotas belong to all of a file system")
	}
	return o, set, err
}

// folderRule has no character that the configuration of Ganesha or stunnel gives a meaning.
var folderRule = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)

func checkFolder(path string) error {
	if !folderRule.MatchString(path) || filepath.Clean(path) != path {
		return errors.New("want an absolute path of letters, digits, dots, dashes and underscores")
	}
	return nil
}
