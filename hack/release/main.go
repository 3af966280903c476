// Command release makes what a release consists of, in a folder: images, manifests, the kubectl plugin,
// lists of what they contain, checksums and notes. docs/contribute/release.md describes each. Run it
// in the root of the repository with make release, and push the images with make release-push.
package main

import (
	"cmp"
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
	version    string // v1.2.3
	registry   string // the folder of the images in a registry
	download   string // where users find the files of dist
	repository string // the address of the source code; "" = not known
	tag        string // of the images of a chart without a release
	out        string // dist
	work       string // for what is kept between runs
	key        string // cosign's; "" = no signature
	push       bool
	chart      bool
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "version, for example v1.2.3")
	flag.StringVar(&o.registry, "registry", "", "registry and folder of the images, for example registry.example.com/storage")
	flag.StringVar(&o.download, "download-url", "", "address of the folder from which users download the files")
	flag.StringVar(&o.repository, "repository", "", "address of the source code, which the chart names")
	flag.StringVar(&o.tag, "tag", "", "tag of the images that the chart names without a release; default is the version")
	flag.StringVar(&o.out, "out", "dist", "folder to write, which is emptied")
	flag.StringVar(&o.work, "work", "bin/release", "folder for what the next run can use again")
	flag.StringVar(&o.key, "cosign-key", "", "key with which cosign signs the checksums")
	flag.BoolVar(&o.push, "push", false, "push the images and the chart of the folder instead of writing it")
	flag.BoolVar(&o.chart, "chart", false, "write the chart alone, of the working folder, without a release")
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
	if o.chart {
		o.setDefaults()
	}
	if err := o.check(); err != nil {
		return err
	}
	switch {
	case o.chart:
		return makeChart(o)
	case o.push:
		return errors.Join(pushImages(ctx, o), pushChart(ctx, o))
	}
	return makeRelease(ctx, o)
}

// setDefaults completes the options of a chart without a release. Its version is older than any release, and no
// registry can have the default one.
func (o *options) setDefaults() {
	o.version = cmp.Or(o.version, "v0.0.0-dev")
	o.registry = cmp.Or(o.registry, "replace-me.invalid/efs-stunnel")
	o.tag = cmp.Or(o.tag, o.version)
}

// addressRule is an address over https, without a slash at its end.
var addressRule = regexp.MustCompile(`^https://[^\s"]+[^/\s"]$`)

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
	if o.repository != "" && !addressRule.MatchString(o.repository) {
		errs = append(errs, fmt.Errorf("REPOSITORY=%s: want the https address of the source code, without a / at its end", o.repository))
	}
	if !o.push && !o.chart && !addressRule.MatchString(o.download) {
		errs = append(errs, fmt.Errorf("DOWNLOAD_URL=%s: want the https address of the folder from which users will download dist, without a / at its end", o.download))
	}
	return errors.Join(errs...)
}

// number returns the version as Helm and SPDX write it.
func (o options) number() string { return strings.TrimPrefix(o.version, "v") }
