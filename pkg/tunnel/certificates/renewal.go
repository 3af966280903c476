package certificates

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// renew sees to the certificates that are due. What fails for one leaves it as it is.
func (k *Keeper) renew(ctx context.Context, due map[string]*paper) {
	if err := k.ensureKey(); err != nil {
		k.failAll(due, err)
		return
	}
	known := map[string]askedCredentials{} // by region
	for _, name := range slices.Sorted(maps.Keys(due)) {
		p := due[name]
		k.take(name, p)
		if !p.isDue(wallClock()) {
			continue // it was on disk
		}
		k.renewOne(ctx, name, p, known)
		if ctx.Err() != nil {
			return
		}
	}
}

// take looks on disk once.
func (k *Keeper) take(name string, p *paper) {
	if p.shown().der != nil || p.failures > 0 {
		return
	}
	text, err := k.options.Dir.Certificate(name)
	if err == nil && text != nil {
		err = p.load(text, &k.key.PublicKey)
	}
	if err != nil {
		k.logOf(p).Info("client certificate on disk is of no use", "err", err)
	}
}

func (k *Keeper) renewOne(ctx context.Context, name string, p *paper, known map[string]askedCredentials) {
	var c Credentials
	var err error
	if p.identity.IAM {
		c, err = k.credentials(ctx, p.identity.Region, known)
	}
	if ctx.Err() != nil {
		return // the end is no failure
	}
	now := wallClock()
	if err == nil {
		err = k.write(name, p, c, now)
	}
	if err == nil {
		return
	}
	first := p.problem == ""
	p.fail(err, now)
	if first {
		k.logOf(p).Warn("client certificate cannot be made or renewed", "err", err, "requeueAfter", p.due.Sub(now))
	}
}

// write puts the certificate in place before anybody is told of it.
func (k *Keeper) write(name string, p *paper, c Credentials, now time.Time) error {
	fresh, err := p.renew(k.key, k.options.Node, c, now)
	if err != nil {
		return err
	}
	next := *p
	next.succeed(fresh, c, now)
	if err := k.options.Dir.WriteCertificate(name, next.text()); err != nil {
		return err
	}
	if p.problem != "" {
		k.logOf(p).Info("client certificate is as it should be again")
	}
	*p = next
	return nil
}

// askedCredentials are those that were asked for in this round.
type askedCredentials struct {
	Credentials
	err error
}

func (k *Keeper) credentials(ctx context.Context, region string, known map[string]askedCredentials) (Credentials, error) {
	if region == "" {
		return Credentials{}, errNoRegion
	}
	asked, ok := known[region]
	if !ok {
		ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
		defer cancel()
		asked.Credentials, asked.err = k.options.Credentials(ctx, region)
		known[region] = asked
	}
	if asked.err != nil {
		return Credentials{}, fmt.Errorf("looking for AWS credentials: %w", asked.err)
	}
	return asked.Credentials, nil
}

var errNoRegion = errors.New("the region is not known for which it must be signed")

func (k *Keeper) failAll(due map[string]*paper, err error) {
	now := wallClock()
	for _, name := range slices.Sorted(maps.Keys(due)) {
		p := due[name]
		if p.problem == "" {
			k.logOf(p).Warn("client certificate cannot be made or renewed", "err", err)
		}
		p.fail(err, now)
	}
}

// keepFiles puts back what somebody took away.
func (k *Keeper) keepFiles() {
	var errs []error
	if k.key != nil && len(k.papers) > 0 {
		errs = append(errs, k.options.Dir.WriteKey(k.keyText))
	}
	for name, p := range k.papers {
		if shown := p.shown(); shown.der != nil {
			errs = append(errs, k.options.Dir.WriteCertificate(name, shown.text()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		k.options.Log.Warn("files of client certificates cannot be kept", "err", err)
	}
}

func (k *Keeper) logOf(p *paper) *slog.Logger {
	log := k.options.Log.With("fileSystem", p.identity.FileSystem)
	if p.identity.AccessPoint != "" {
		log = log.With("accessPoint", p.identity.AccessPoint)
	}
	return log
}
