package certificates

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// renew makes or renews the certificates that are due. A failure for one tunnel affects no other.
func (r *Renewer) renew(ctx context.Context, due map[string]*certificate) {
	keyErr := r.ensureKey()
	fetched := map[string]fetchedCredentials{} // by region
	for _, name := range slices.Sorted(maps.Keys(due)) {
		c := due[name]
		if keyErr != nil {
			r.fail(name, c, keyErr)
			continue
		}
		r.load(name, c)
		if !c.isDue(wallClock()) {
			continue // the file has a valid one
		}
		r.renewOne(ctx, name, c, fetched)
		if ctx.Err() != nil {
			return
		}
	}
}

// load reads the certificate that an earlier run of the agent wrote.
func (r *Renewer) load(name string, c *certificate) {
	if c.current().der != nil || c.failures > 0 {
		return
	}
	text, err := r.options.Dir.Certificate(name).Read()
	if err == nil && text != nil {
		err = c.load(text, &r.key.PublicKey)
	}
	if err != nil {
		r.logOf(name).Info("stored client certificate cannot be used; making a new one", "err", err)
	}
}

func (r *Renewer) renewOne(ctx context.Context, name string, c *certificate, fetched map[string]fetchedCredentials) {
	var credentials Credentials
	var err error
	if c.identity.IAM {
		credentials, err = r.credentials(ctx, c.identity.Region, fetched)
	}
	if ctx.Err() != nil {
		return // the agent's end is not a failure of the certificate
	}
	if err == nil {
		err = r.write(name, c, credentials, wallClock())
	}
	if err != nil {
		r.fail(name, c, err)
	}
}

// fail logs the first failure in a row.
func (r *Renewer) fail(name string, c *certificate, err error) {
	now, first := wallClock(), c.problem == ""
	c.recordFailure(err, now)
	if first {
		r.logOf(name).Warn("client certificate cannot be made or renewed", "err", err, "requeueAfter", c.due.Sub(now))
	}
}

// write stores the certificate in its file before it is published.
func (r *Renewer) write(name string, c *certificate, credentials Credentials, now time.Time) error {
	renewed, err := c.renew(r.key, r.options.Node, credentials, now)
	if err != nil {
		return err
	}
	next := *c
	next.recordSuccess(renewed, credentials, now)
	if err := r.options.Dir.Certificate(name).Write(next.pem()); err != nil {
		return err
	}
	if c.problem != "" {
		r.logOf(name).Info("client certificate can be renewed again")
	}
	*c = next
	return nil
}

// fetchedCredentials are the result of the one request for credentials in a sync.
type fetchedCredentials struct {
	Credentials
	err error
}

func (r *Renewer) credentials(ctx context.Context, region string, fetched map[string]fetchedCredentials) (Credentials, error) {
	if region == "" {
		return Credentials{}, errors.New("the region is not known for which it must be signed")
	}
	result, ok := fetched[region]
	if !ok {
		ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
		defer cancel()
		result.Credentials, result.err = r.options.Credentials(ctx, region)
		fetched[region] = result
	}
	if result.err != nil {
		return Credentials{}, fmt.Errorf("looking for AWS credentials: %w", result.err)
	}
	return result.Credentials, nil
}

// restoreFiles writes the files that were removed or changed by others.
func (r *Renewer) restoreFiles() {
	var errs []error
	if r.key != nil && len(r.certificates) > 0 {
		errs = append(errs, r.options.Dir.Key().Write(r.keyPEM))
	}
	for name, c := range r.certificates {
		if current := c.current(); current.der != nil {
			errs = append(errs, r.options.Dir.Certificate(name).Write(current.pem()))
		}
	}
	if err := logging.Errors(errs...); err != nil {
		r.options.Log.Warn("files of client certificates cannot be written", "err", err)
	}
}

func (r *Renewer) logOf(name string) *slog.Logger { return logging.ForTunnel(r.options.Log, name) }
