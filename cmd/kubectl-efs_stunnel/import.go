package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
)

type importFlags struct {
	outliveFlags
	pattern, list, from, base, accessPoints, suffix string
	trust                                           bool
}

func (p *plugin) importDirectories() *cobra.Command {
	var f importFlags
	command := p.onFileSystems(&cobra.Command{
		Use:   "import (NAMESPACE/CLAIM=/path ... | --list FILE | --pattern PATTERN | --from PROVISIONER)",
		Short: "Make volumes and claims of directories that exist",
		Long: "Make volumes and bound claims of directories of a file system that exist, and have no owner.\n\n" +
			"Without --apply it prints the objects, and changes nothing. The directories are never changed, and never removed\n" +
			"with their volumes, except with --reclaim-policy Delete. Objects that exist are left alone.",
		Example: "  kubectl efs-stunnel import team/reports=/old/reports --file-system fs-0123456789abcdef0\n" +
			"  kubectl efs-stunnel import --pattern '/home/{namespace}/{claim}' --apply\n" +
			"  kubectl efs-stunnel import --from nfs-subdir-external-provisioner --base /exports --class efs-stunnel --apply",
		Args:    cobra.ArbitraryArgs,
		PreRunE: func(_ *cobra.Command, args []string) error { return f.check(args, *p.flags.Namespace) },
	}, func(ctx context.Context, i installation, args []string) error { return p.runImport(ctx, i, args, f) })
	f.add(command, wellknown.StorageClass, "storage class of volumes and claims")
	flags := command.Flags()
	flags.StringVar(&f.list, "list", "", "file with a line NAMESPACE/CLAIM=/path for each directory; - is the standard input")
	flags.StringVar(&f.pattern, "pattern", "", "directories, with *, ?, {namespace} and {claim}; without {claim} the directory's name is the claim's")
	flags.StringVar(&f.from, "from", "", "directories of another provisioner: "+strings.Join(rebuild.Provisioners(), ", "))
	flags.StringVar(&f.base, "base", "", "the directory in which --from has made its own")
	flags.StringVar(&f.accessPoints, "access-points", "", "file with the output of aws efs describe-access-points, for --from "+string(rebuild.AWSDriver)+", and for classes with access points")
	flags.StringVar(&f.suffix, "claim-suffix", "", "ends the names of the claims, while the old ones exist")
	flags.BoolVar(&f.trust, "trust-path-names", false, "believe the names of --from's directories, and of claims of its volumes that are not bound")
	_ = command.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(rebuild.Provisioners(), cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (p *plugin) runImport(ctx context.Context, i installation, args []string, f importFlags) error {
	if len(i.fileSystems) != 1 {
		return fmt.Errorf("name the file system with --file-system: want one of %s", strings.Join(i.fileSystems, ", "))
	}
	cluster, err := p.givenCluster(i, f.accessPoints)
	if err != nil {
		return err
	}
	if cluster, err = i.runner.Cluster(ctx, cluster); err != nil {
		return err
	}
	plan := rebuild.Import{Cluster: cluster, Choice: f.Choice, FileSystem: i.fileSystems[0], TrustNames: f.trust || f.pattern != ""}
	items, err := p.planImport(ctx, i, plan, args, f)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		p.say(plan.FileSystem, "it has no such directory")
	}
	return p.finish(ctx, i, items, nil, f.outliveFlags)
}

// check wants one way to choose directories. The namespace is the one that was asked for, or "".
func (f *importFlags) check(args []string, namespace string) error {
	ways := 0
	for _, given := range []bool{len(args) > 0, f.list != "", f.pattern != "", f.from != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errors.New("want one of: NAMESPACE/CLAIM=/path, --list, --pattern, --from")
	case f.from != "" && !slices.Contains(rebuild.Provisioners(), f.from):
		return fmt.Errorf("--from %q: want one of %s", f.from, strings.Join(rebuild.Provisioners(), ", "))
	case f.base != "" && (f.from == "" || f.from == string(rebuild.AWSDriver)):
		return errors.New("--base: it is for --from with a provisioner that makes its directories in one")
	case f.trust && f.from == "":
		return errors.New("--trust-path-names: it is for --from")
	case f.trust && f.from == string(rebuild.EFSProvisioner) && namespace == "":
		return fmt.Errorf("--trust-path-names: names of %s have no namespace: say with -n whose they are", f.from)
	}
	return f.outliveFlags.check()
}

func (p *plugin) planImport(ctx context.Context, i installation, plan rebuild.Import, args []string, f importFlags) ([]rebuild.Item, error) {
	if f.pattern != "" || f.from != "" && f.from != string(rebuild.AWSDriver) {
		return p.planTemplate(ctx, i, plan, f)
	}
	wanted, err := p.wanted(plan, args, f)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	var request requests.Directories
	for _, w := range wanted {
		request.Paths = append(request.Paths, w.Path)
	}
	found, ledger, err := i.runner.Directories(ctx, plan.FileSystem, request)
	if err != nil {
		return nil, err
	}
	return plan.Plan(p.chosen(wanted, f), found, ledger), nil
}

// wanted returns the directories whose paths are known.
func (p *plugin) wanted(plan rebuild.Import, args []string, f importFlags) ([]rebuild.Wanted, error) {
	switch {
	case f.list != "":
		text, err := p.read(f.list)
		if err != nil {
			return nil, fmt.Errorf("--list: %w", err)
		}
		wanted, err := rebuild.ParseList(string(text), p.namespace())
		if err != nil {
			return nil, fmt.Errorf("--list %s: %w", f.list, err)
		}
		return wanted, nil
	case f.from != "":
		return rebuild.WantedOf(plan.Points, rebuild.AWSDriver.KnownClaims(plan.Volumes, plan.FileSystem, plan.Points)), nil
	}
	var wanted []rebuild.Wanted
	for _, arg := range args {
		w, err := rebuild.ParsePair(arg, p.namespace())
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, w)
	}
	return wanted, nil
}

// givenCluster has no objects yet. The name is that of the file of --access-points, "" if it was not given.
func (p *plugin) givenCluster(i installation, name string) (rebuild.Cluster, error) {
	cluster := rebuild.Cluster{UID: i.cluster, Provisioner: i.Provisioner, Targets: i.targets}
	if name == "" {
		return cluster, nil
	}
	text, err := p.read(name)
	if err == nil {
		cluster.Points, err = rebuild.ParseAccessPoints(text, i.fileSystems)
	}
	if err != nil {
		err = fmt.Errorf("--access-points %s: %w", name, err)
	}
	return cluster, err
}

// read reads a file; - is the standard input.
func (p *plugin) read(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(p.streams.In)
	}
	return os.ReadFile(name)
}

// planTemplate names the claims of directories by their paths.
func (p *plugin) planTemplate(ctx context.Context, i installation, plan rebuild.Import, f importFlags) ([]rebuild.Item, error) {
	from := rebuild.Provisioner(f.from)
	template, err := rebuild.ParseTemplate(cmp.Or(f.pattern, from.Template(f.base)))
	if err != nil {
		return nil, err
	}
	found, ledger, err := i.runner.Directories(ctx, plan.FileSystem, requests.Directories{Patterns: []string{template.Pattern()}})
	if err != nil {
		return nil, err
	}
	namespace := p.namespace()
	var known map[string]rebuild.Wanted
	if f.from != "" {
		namespace = *p.flags.Namespace // the context's is nobody's word about what others have made
		known = from.KnownClaims(plan.Volumes, plan.FileSystem, nil)
	}
	return plan.Plan(p.chosen(template.NameAll(found, known, namespace), f), found, ledger), nil
}

// chosen leaves out claims of other namespaces than the one that was asked for, and gives the claims their suffix.
func (p *plugin) chosen(wanted []rebuild.Wanted, f importFlags) []rebuild.Wanted {
	var chosen []rebuild.Wanted
	for _, w := range wanted {
		if namespace := *p.flags.Namespace; namespace != "" && w.Claim != "" && w.Namespace != namespace {
			continue
		}
		if w.Claim != "" {
			w.Claim += f.suffix
		}
		chosen = append(chosen, w)
	}
	return chosen
}
