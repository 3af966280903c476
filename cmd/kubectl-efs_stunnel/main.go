// Command kubectl-efs_stunnel is a plugin of kubectl, which runs it as "kubectl efs-stunnel". It shows
// the state of an installation, and finds the cause of a problem.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/kube/clock"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(run(ctx, os.Args[1:], streams, connect))
}

// Exit codes.
const (
	exitHealthy  = 0
	exitProblems = 1
	exitUnknown  = 2 // wrong usage, or the cluster could not be asked for everything
)

type connection struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	now     func() time.Time
}

type connector func(genericclioptions.RESTClientGetter) (connection, error)

// connect uses the user's kubeconfig, and for ages of objects the apiserver's time: a laptop's may be wrong.
func connect(getter genericclioptions.RESTClientGetter) (connection, error) {
	config, err := getter.ToRESTConfig()
	if err != nil {
		return connection{}, err
	}
	apiClock := clock.New("", time.Now, slog.New(slog.DiscardHandler))
	config = rest.CopyConfig(config)
	config.Wrap(apiClock.Wrap)
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "kubectl-efs_stunnel/" + buildinfo.Read().Version
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return connection{}, err
	}
	objects, err := dynamic.NewForConfig(config)
	return connection{client: client, dynamic: objects, now: apiClock.Now}, err
}

// errProblems and errUnknown end the program after its output.
var (
	errProblems = errors.New("problems were found")
	errUnknown  = errors.New("not everything could be read")
)

func run(ctx context.Context, args []string, streams genericiooptions.IOStreams, connect connector) int {
	p := &plugin{flags: genericclioptions.NewConfigFlags(true), streams: streams, connect: connect}
	command := p.root() //nolint:contextcheck // cobra passes the context to the commands
	command.SetArgs(args)
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	switch err := command.ExecuteContext(ctx); {
	case err == nil:
		return exitHealthy
	case errors.Is(err, errProblems):
		return exitProblems
	case !errors.Is(err, errUnknown):
		fmt.Fprintln(streams.ErrOut, "error:", printing.Line(err.Error()))
	}
	return exitUnknown
}

type plugin struct {
	flags   *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
	connect connector

	system, provisioner, output string // flags
}

func (p *plugin) root() *cobra.Command {
	command := &cobra.Command{
		Use:   "kubectl-efs_stunnel",
		Short: "Show the state of efs-stunnel, and find causes of problems",
		Long: "Show the state of efs-stunnel, and find causes of problems.\n\n" +
			"Exit code 0: healthy. 1: problems were found. 2: wrong usage, or the cluster could not be asked for everything.",
		Version:       buildinfo.Read().String(),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl efs-stunnel"},
		SilenceUsage:  true,
		SilenceErrors: true,

		PersistentPreRunE: refuseEmpty,
	}
	flags := command.PersistentFlags()
	p.flags.AddFlags(flags)
	flags.StringVar(&p.system, "system-namespace", "", "namespace of the installation (default: "+strings.Join(inspect.Namespaces(), " or ")+")")
	flags.StringVar(&p.provisioner, "provisioner", "", "provisioner of the storage classes (default: the manager's)")
	flags.StringVarP(&p.output, "output", "o", "", "output format: "+strings.Join(printing.Formats(), ", ")+" (default: text)")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(printing.Formats(), cobra.ShellCompDirectiveNoFileComp))
	_ = command.RegisterFlagCompletionFunc("namespace", p.completeNamespaces)
	_ = command.RegisterFlagCompletionFunc("system-namespace", p.completeNamespaces)
	command.AddCommand(p.status(), p.doctor(), p.usage(), p.collect(), p.preflight(), p.dashboard(), p.translate(), p.trash(), p.owners(), p.rebuild(), p.importDirectories())
	withoutArguments(command)
	return command
}

// refuseEmpty refuses a flag of a command that is given and empty, as by a variable of a script that is not set: without
// the flag, a command may be about everything.
func refuseEmpty(command *cobra.Command, _ []string) (err error) {
	command.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if f.Changed && (len(values) == 0 || slices.Contains(values, "")) {
			err = fmt.Errorf("--%s is empty: want a value, or leave it out", f.Name)
		}
	})
	return err
}

// withoutArguments has the commands below one refuse arguments, and complete none, unless they say otherwise.
func withoutArguments(parent *cobra.Command) {
	for _, command := range parent.Commands() {
		withoutArguments(command)
		if command.RunE != nil && command.Args == nil {
			command.Args = cobra.NoArgs
		}
		if command.ValidArgsFunction == nil && !command.HasSubCommands() {
			command.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}

func (p *plugin) status() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the installation, problems first",
		Example: "  kubectl efs-stunnel status\n  kubectl efs-stunnel status -o json",
		RunE: func(command *cobra.Command, _ []string) error {
			snapshot, err := p.gather(command.Context(), false)
			if err != nil {
				return err
			}
			status := inspect.NewStatus(snapshot)
			return show(p, status, status.Level, snapshot.Now)
		},
	}
}

func (p *plugin) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [pvc NAME | pod NAME | sv NAME | node NAME | [file-system] ID]",
		Short: "Find the cause of a problem",
		Long: "Find the cause of a problem of a claim, a pod, a SharedVolume, a node or a file system, or of any part of the installation.\n" +
			"It says what was checked, what is wrong, and what mends it.",
		Example: "  kubectl efs-stunnel doctor\n  kubectl efs-stunnel doctor pvc reports -n team\n" +
			"  kubectl efs-stunnel doctor pod web-0 -n team\n  kubectl efs-stunnel doctor fs-0123456789abcdef0\n  kubectl efs-stunnel doctor node n1 -o json",
		Args:              cobra.ArbitraryArgs, // subject checks them
		ValidArgsFunction: p.completeSubject,
		RunE: func(command *cobra.Command, args []string) error {
			subject, err := p.subject(args)
			if err != nil {
				return err
			}
			snapshot, err := p.gather(command.Context(), subject.IsNamespaced())
			if err != nil {
				return err
			}
			diagnosis := inspect.Examine(snapshot, subject)
			return show(p, diagnosis, diagnosis.Level, snapshot.Now)
		},
	}
}

// subject accepts KIND NAME and KIND/NAME, as kubectl does.
func (p *plugin) subject(args []string) (inspect.Subject, error) {
	if len(args) == 1 {
		args = strings.SplitN(args[0], "/", 2)
	}
	var subject inspect.Subject
	switch {
	case len(args) == 0:
		return subject, nil
	case len(args) == 1 && !slices.Contains(subjectKinds(), args[0]) && ports.CheckTargetID(args[0]) == nil:
		subject.Kind, subject.Name = inspect.KindFileSystem, args[0]
		return subject, nil
	case len(args) == 2 && args[1] != "" && kindsOf[args[0]] != "":
		subject.Kind, subject.Name = kindsOf[args[0]], args[1]
		if subject.IsNamespaced() {
			subject.Namespace = p.namespace()
		}
		return subject, nil
	}
	return subject, fmt.Errorf("doctor %s: want nothing, pvc NAME, pod NAME, sv NAME, node NAME or the id of a file system", strings.Join(args, " "))
}

// subjectKinds returns the kinds that are completed.
func subjectKinds() []string { return []string{"pvc", "pod", "sv", "node", "file-system"} }

// kindsOf has the kinds of subjects by the names that they have for kubectl.
var kindsOf = map[string]string{
	"pvc": inspect.KindClaim, "persistentvolumeclaim": inspect.KindClaim, "persistentvolumeclaims": inspect.KindClaim,
	"pod": inspect.KindPod, "pods": inspect.KindPod, "po": inspect.KindPod,
	"sv": inspect.KindSharedVolume, "sharedvolume": inspect.KindSharedVolume, "sharedvolumes": inspect.KindSharedVolume,
	"node": inspect.KindNode, "nodes": inspect.KindNode, "no": inspect.KindNode,
	"file-system": inspect.KindFileSystem, "fs": inspect.KindFileSystem,
}

// show prints a report, and returns the exit code of its level.
func show[T printing.Report](p *plugin, value T, level inspect.Level, now time.Time) error {
	if err := printing.Write(colorsOf(p.streams.Out), p.output, value, now); err != nil {
		return err
	}
	return map[inspect.Level]error{inspect.Problem: errProblems, inspect.Unknown: errUnknown}[level]
}

func (p *plugin) gather(ctx context.Context, withUsers bool) (*inspect.Snapshot, error) {
	c, progress, err := p.begin()
	if err != nil {
		return nil, err
	}
	defer progress.stop()
	return p.gatherFrom(ctx, c, withUsers)
}

// open connects to the cluster, unless there is no such format for the output.
func (p *plugin) open() (connection, error) {
	if err := printing.CheckFormat(p.output); err != nil {
		return connection{}, err
	}
	return p.connect(p.flags)
}

// begin connects to the cluster for a command that reads its objects first.
func (p *plugin) begin() (connection, *progress, error) {
	c, err := p.open()
	if err != nil {
		return c, nil, err
	}
	progress := newProgress(p.streams.ErrOut)
	progress.step("reading objects")
	return c, progress, nil
}

func (p *plugin) gatherFrom(ctx context.Context, c connection, withUsers bool) (*inspect.Snapshot, error) {
	return inspect.Gather(ctx, c.client, inspect.Options{
		Namespace: p.system, Provisioner: p.provisioner, ClaimNamespace: p.namespace(), WithUsers: withUsers, Now: c.now,
		Dynamic: c.dynamic,
	})
}

// namespace returns the namespace of the flag or of the kubeconfig's context.
func (p *plugin) namespace() string {
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return corev1.NamespaceDefault
	}
	return namespace
}
