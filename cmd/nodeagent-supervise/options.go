package main

import (
	"crypto/fips140"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

// maxIdle is the longest --tunnel-idle.
const maxIdle = 24 * time.Hour

// options are checked settings.
type options struct {
	stunnelConf string
	stunnel     string // absolute path
	idle        time.Duration
	fips        bool
	log         program.Log
}

func parseOptions(args []string, getenv func(string) string) (options, *settings.Set, error) {
	o := options{stunnelConf: wellknown.DefaultStunnelConf, idle: wellknown.DefaultTunnelIdle}
	set := settings.New("nodeagent supervise")
	tunnels := set.Group("Tunnels")
	tunnels.Add(settings.Text(&o.stunnelConf, "path", confdir.CheckPrefix), "stunnel-conf", "STUNNEL_CONF_PATH",
		"`path` that begins the names of the tunnels' files; stunnel's configuration adds a dot and the tunnel's name")
	programs := []string{wellknown.StunnelPath, wellknown.StunnelSystemPath, wellknown.StunnelCommand}
	tunnels.Add(settings.Text(&o.stunnel, "program", checkProgram), "stunnel", "STUNNEL_PATH",
		"stunnel `program`; default is the first that exists of "+strings.Join(programs, ", "))
	tunnels.Add(settings.Duration(&o.idle, 0, maxIdle), "tunnel-idle", "",
		"`time` without a connection after which a tunnel's stunnel stops, until the next connection; with 0, all run always")
	tunnels.Add(settings.Bool(&o.fips), "fips", "EFS_FIPS",
		"run stunnel in FIPS mode, and nothing without; needs images that are built for it ("+wellknown.DocsURL+"tasks/fips.md)")
	o.log.Add(set.Group("Logs"))
	if err := set.Parse(args, getenv); err != nil {
		return options{}, set, err
	}
	// The agent, which probes servers over TLS, is of the same build.
	if o.fips && !fips140.Enabled() {
		return options{}, set, set.Wrong("fips", errors.New("want an image whose Go programs are built with GOFIPS140, for example make images GOFIPS140=v1.0.0"))
	}
	if o.stunnel != "" {
		programs = []string{o.stunnel}
	}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			o.stunnel, err = filepath.Abs(path)
			return o, set, err
		}
	}
	err := fmt.Errorf("want an executable program; there is none at %s", strings.Join(programs, ", "))
	return options{}, set, set.Wrong("stunnel", err)
}

func checkProgram(name string) error {
	if name == "" || strings.ContainsAny(name, "\x00\r\n") {
		return errors.New("want the path or name of a program")
	}
	return nil
}
