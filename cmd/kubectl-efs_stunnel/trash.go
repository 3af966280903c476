package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"gnuthought.com/efs-stunnel/pkg/plugin/ledger"
)

func (p *plugin) trash() *cobra.Command {
	const short = "List, restore or remove the directories of deleted volumes"
	command := &cobra.Command{Use: "trash", Short: short, Long: short + "." + jobsNote}
	command.AddCommand(p.trashList(), p.trashRestore(), p.trashEmpty())
	return command
}

func (p *plugin) trashList() *cobra.Command {
	return p.onFileSystems(&cobra.Command{
		Use:     "list",
		Short:   "List what is in the trash, whose it was, and how long it is kept",
		Example: "  kubectl efs-stunnel trash list\n  kubectl efs-stunnel trash list -n team -o json",
	}, func(ctx context.Context, i installation, _ []string) error {
		items, failed := i.runner.ListTrash(ctx, i.fileSystems)
		if namespace := *p.flags.Namespace; namespace != "" {
			items = slices.DeleteFunc(items, func(item ledger.TrashItem) bool { return item.Unknown || item.Namespace != namespace })
		}
		return errors.Join(failed, p.printTrash(i, items))
	})
}

func (p *plugin) printTrash(i installation, items []ledger.TrashItem) error {
	return printRows(p, items, "Nothing found in the trash.", ledger.TrashRows(items, i.cluster, i.Now))
}

func (p *plugin) trashEmpty() *cobra.Command {
	var choice ledger.TrashChoice
	var all, yes bool
	command := p.onFileSystems(&cobra.Command{
		Use:   "empty (--all | -n NAMESPACE | --claim NAME)",
		Short: "Remove directories from the trash before their time",
		Long: "Remove directories from the trash before their time, also those that are kept forever.\n" +
			"They cannot be restored any more. Those of other clusters stay, unless one is named by its uid.",
		Example: "  kubectl efs-stunnel trash empty -n team\n  kubectl efs-stunnel trash empty --claim reports -n team --yes",
		PreRunE: func(*cobra.Command, []string) error {
			choice.Namespace = *p.flags.Namespace
			switch {
			case all && (choice.Namespace != "" || len(choice.Claims) > 0):
				return errors.New("--all: want neither --namespace nor --claim with it")
			case !all && choice.Namespace == "" && len(choice.Claims) == 0:
				return errors.New("nothing is chosen: want --all, --namespace or --claim")
			case len(choice.Claims) > 0:
				choice.Namespace = p.namespace()
			}
			return nil
		},
	}, func(ctx context.Context, i installation, _ []string) error {
		choice.Cluster = cmp.Or(choice.Cluster, i.cluster)
		return p.empty(ctx, i, choice, yes)
	})
	command.Flags().BoolVar(&all, "all", false, "everything that the cluster has in the trash")
	command.Flags().StringSliceVar(&choice.Claims, "claim", nil, "names or uids of deleted claims of the namespace")
	command.Flags().StringVar(&choice.Cluster, "cluster", "", "uid of another cluster (default: this one)")
	command.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return command
}

func (p *plugin) empty(ctx context.Context, i installation, choice ledger.TrashChoice, yes bool) error {
	items, err := i.runner.ListTrash(ctx, i.fileSystems)
	if err != nil {
		return err
	}
	chosen, err := choice.Select(items)
	if err != nil {
		return err
	}
	if err := p.printTrash(i, chosen); err != nil || len(chosen) == 0 {
		return err
	}
	if err := p.confirm(yes, fmt.Sprintf("Remove %d directories for good?", len(chosen))); err != nil {
		return err
	}
	answers, failed := i.runner.Ask(ctx, choice.Removal(chosen))
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		end := answers[id].End
		if end.Swept != nil {
			p.say(id, fmt.Sprintf("%d directories of volumes are removed, with %d files and directories", end.Swept.Volumes, end.Swept.Removed))
		}
		if end.Stopped {
			p.say(id, "the Job's time was over: what is left of these directories is removed by the next sweep")
		}
	}
	return failed
}

type restoreFlags struct {
	ledger.Restore
	class   string
	size    resource.QuantityValue
	timeout time.Duration
}

func (p *plugin) trashRestore() *cobra.Command {
	f := restoreFlags{size: resource.QuantityValue{Quantity: resource.MustParse(defaultSize)}}
	command := p.onFileSystems(&cobra.Command{
		Use:   "restore CLAIM",
		Short: "Give the directory of a deleted claim to a new claim",
		Long: "Give the directory of a deleted claim, named by its name or uid, to a new claim of its cluster and namespace.\n" +
			"The new claim has a directory of its own, unless --volume-name says where.",
		Example: "  kubectl efs-stunnel trash restore reports -n team\n  kubectl efs-stunnel trash restore reports -n team --name old-reports --size 10Gi",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, i installation, args []string) error {
		f.Cluster, f.Provisioner, f.Claim, f.Size = i.cluster, i.Provisioner, args[0], f.size.Quantity
		return p.restore(ctx, i, f)
	})
	flags := command.Flags()
	flags.StringVar(&f.Name, "name", "", "name of the new claim (default: that of the deleted one)")
	flags.StringVar(&f.class, "class", "", "storage class of the new claim (default: that of the deleted one)")
	flags.StringVar(&f.VolumeName, "volume-name", "", "label volume_name of the new claim")
	flags.Var(&f.size, "size", "size of the new claim")
	flags.StringVar((*string)(&f.AccessMode), "access-mode", string(corev1.ReadWriteMany), "access mode of the new claim")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait until the new claim is bound")
	return command
}

func (p *plugin) restore(ctx context.Context, i installation, f restoreFlags) (err error) {
	if f.Namespace, err = i.client.CoreV1().Namespaces().Get(ctx, p.namespace(), metav1.GetOptions{}); err != nil {
		return err
	}
	items, err := i.runner.ListTrash(ctx, i.fileSystems)
	if err != nil {
		return err
	}
	item, err := f.Find(items)
	if err != nil {
		return err
	}
	f.Name, f.class = cmp.Or(f.Name, item.Claim), cmp.Or(f.class, item.Class)
	return p.restoreItem(ctx, i, item, f)
}

func (p *plugin) restoreItem(ctx context.Context, i installation, item ledger.TrashItem, f restoreFlags) error {
	if f.class == "" {
		return fmt.Errorf("the trash does not say which class claim %s had: name one with --class", f.Claim)
	}
	object, err := i.client.StorageV1().StorageClasses().Get(ctx, f.class, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no storage class %s: name another with --class", f.class)
	}
	if err != nil {
		return err
	}
	claim, class, err := f.Object(item, object)
	if err != nil {
		return err
	}
	claim, err = i.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("claim %s/%s exists: choose another name with --name", f.Namespace.Name, f.Name)
	}
	if err != nil {
		return err
	}
	if class.WaitsForNode {
		p.say("claim "+claim.Namespace+"/"+claim.Name, "created; it gets the directory when a pod uses it")
		return nil
	}
	return p.awaitRestored(ctx, i, claim, f.timeout)
}

// awaitRestored shows what a claim waits for until it is bound.
func (p *plugin) awaitRestored(ctx context.Context, i installation, claim *corev1.PersistentVolumeClaim, timeout time.Duration) error {
	claims, name, said := i.client.CoreV1().PersistentVolumeClaims(claim.Namespace), "claim "+claim.Namespace+"/"+claim.Name, ""
	err := wait.PollUntilContextTimeout(ctx, time.Second, timeout, true, func(ctx context.Context) (bool, error) {
		current, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		bound, waits, err := ledger.Restored(current)
		if bound {
			waits = "bound to volume " + current.Spec.VolumeName + ", which has the restored directory"
		}
		if waits != "" && waits != said {
			said = waits
			p.say(name, waits)
		}
		return bound, err
	})
	if err != nil {
		return fmt.Errorf("%s is there, but has no volume: %w; see kubectl -n %s describe pvc %s", name, err, claim.Namespace, claim.Name)
	}
	return nil
}
