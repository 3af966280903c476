package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/hack/release/internal/licenses"
)

// source is the commit from which a release is made.
type source struct {
	revision string
	time     time.Time // of every file in the release
	licenses *licenses.Reader
}

// readSource returns an error if the working folder is not what the commit has.
func readSource(ctx context.Context) (source, error) {
	changes, err := output(ctx, "git", "status", "--porcelain")
	if err != nil {
		return source{}, err
	}
	if changes != "" {
		return source{}, fmt.Errorf("the checkout differs from its commit, so that nobody could make the same release again: commit or remove\n%s", changes)
	}
	revision, err := output(ctx, "git", "rev-parse", "HEAD")
	if err != nil {
		return source{}, err
	}
	seconds, ok := os.LookupEnv("SOURCE_DATE_EPOCH")
	if !ok {
		if seconds, err = output(ctx, "git", "log", "-1", "--format=%ct"); err != nil {
			return source{}, err
		}
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || at < 0 {
		return source{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s: want seconds since 1970", seconds)
	}
	reader, err := licenses.NewReader(ctx)
	return source{revision: revision, time: time.Unix(at, 0).UTC(), licenses: reader}, err
}

// platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// build compiles the programs for a platform as the Dockerfile does, and returns their folder.
func build(ctx context.Context, o options, p platform, programs ...string) (string, error) {
	folder := filepath.Join(o.work, p.String())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("building for %s: %w", p, err)
	}
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-buildvcs=true", "-o", folder + "/"}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	// What a developer has set for other builds would be part of the programs.
	cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0", "GOWORK=off",
		"GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off")
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building for %s: %w", p, err)
	}
	for _, program := range programs {
		if err := checkVersion(filepath.Join(folder, program+p.suffix()), o.version); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// suffix ends the name of a program.
func (p platform) suffix() string {
	if p.os == "windows" {
		return ".exe"
	}
	return ""
}

// checkVersion returns an error if the program would report another version. Go takes it from the tag.
func checkVersion(program, version string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading version of %s: %w", program, err)
	}
	if info.Main.Version != version {
		return fmt.Errorf("%s has the version %s, because the commit has no tag %s: git tag %[3]s", filepath.Base(program), info.Main.Version, version)
	}
	return nil
}

// output returns the output of a program, without the white space around it.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("running %s: %w", name, err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return strings.TrimSpace(string(out)), nil
}
