// Command release makes what a release consists of, in a folder: images, manifests, the kubectl plugin,
// lists of what they contain, checksums and notes. docs/contribute/release.md describes each. Run it
// in the root of the repository with make release, and push the images with make release-push.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

// options are the flags.
type options struct {
	version  string // v1.2.3
	registry string // the folder of the images in a registry
	download string // where users find the files of dist
	out      string // dist
	work     string // for what is kept between runs
	key      string // cosign's; "" = no signature
	push     bool
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "version, for example v1.2.3")
	flag.StringVar(&o.registry, "registry", "", "registry and folder of the images, for example registry.example.com/storage")
	flag.StringVar(&o.download, "download-url", "", "address of the folder from which users download the files")
	flag.StringVar(&o.out, "out", "dist", "folder to write, which is emptied")
	flag.StringVar(&o.work, "work", "bin/release", "folder for what the next run can use again")
	flag.StringVar(&o.key, "cosign-key", "", "key with which cosign signs the checksums")
	flag.BoolVar(&o.push, "push", false, "push the images of the folder instead of writing it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.push {
		return pushImages(ctx, o)
	}
	return makeRelease(ctx, o)
}

// registryRule is a registry with folders, in lower case.
var registryRule = regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

// check returns an error that names each option that is wrong.
func (o options) check() error {
	var errs []error
	if !semver.IsValid(o.version) || semver.Canonical(o.version) != o.version {
		errs = append(errs, fmt.Errorf("VERSION=%s: want a semantic version with three numbers, for example v1.2.3 or v1.3.0-rc.1", o.version))
	}
	if !registryRule.MatchString(o.registry) {
		errs = append(errs, fmt.Errorf("REGISTRY=%s: want the registry and folder of the images in lower case, for example registry.example.com/storage", o.registry))
	}
	if !o.push && !regexp.MustCompile(`^https://[^\s"]+[^/\s"]$`).MatchString(o.download) {
		errs = append(errs, fmt.Errorf("DOWNLOAD_URL=%s: want the https address of the folder from which users will download dist, without a / at its end", o.download))
	}
	return errors.Join(errs...)
}

// number returns the version as Helm and SPDX write it.
func (o options) number() string { return strings.TrimPrefix(o.version, "v") }
