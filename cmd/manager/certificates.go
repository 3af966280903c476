package main

import (
	"context"
	"errors"
	"io"
	"time"

	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/manager/authority"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

// certificatesCommand is the argument by which the program makes and renews certificates, and ends.
const certificatesCommand = "certificates"

type certificateOptions struct {
	client.Options
	servers []string
}

func (o *certificateOptions) settings() *settings.Set {
	set := settings.New("manager certificates")
	g := set.Group("Certificates")
	g.Add(settings.List(&o.servers, "names", client.CheckName("an object")), "servers", "",
		"comma-separated `names` of the Services of all NFS servers")
	o.AddAPI(set.Group("Kubernetes API"), "the Services; default is the pod's own")
	o.Log.Add(set.Group("Logs"))
	return set
}

func renewCertificates(ctx context.Context, args []string, e client.Environment, stdout, stderr io.Writer) int {
	o := certificateOptions{Options: client.Options{Namespace: e.Namespace()}}
	set := o.settings()
	err := set.Parse(args, e.Getenv)
	if err == nil && len(o.servers) == 0 {
		err = errors.New("--servers is missing: want the names of Services")
	}
	if err != nil {
		return program.ExitWithout(set, err, "  manager certificates [flags]\n", stdout, stderr)
	}
	log := o.Log.New(stderr)
	if err := o.renew(ctx, authority.Options{Namespace: o.Namespace, Servers: o.servers, Now: time.Now, Log: log}); err != nil {
		log.Error("certificates are not all in order", "err", err)
		return program.ExitFailed
	}
	return program.ExitDone
}

func (o *certificateOptions) renew(ctx context.Context, renewal authority.Options) error {
	config, err := o.RESTConfig()
	if err != nil {
		return err
	}
	work, err := client.NewClient(config, leaseQPS, leaseBurst, client.EventTimeout)
	if err != nil {
		return err
	}
	return authority.Renew(ctx, work, renewal)
}
