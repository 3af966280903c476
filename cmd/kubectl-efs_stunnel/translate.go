package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/translate"
)

func (p *plugin) translate() *cobra.Command {
	file := ""
	command := &cobra.Command{
		Use:   "translate -f FILE",
		Short: "Print the storage class, or SharedVolume, to use in place of another provisioner's",
		Long: "Print the storage class to use in place of another provisioner's, or the SharedVolume in place of the AWS EFS\n" +
			"Operator's, with comments about what differs. No cluster is asked.",
		Example: "  kubectl efs-stunnel translate -f class.yaml\n  kubectl get storageclass efs-sc -o yaml | kubectl efs-stunnel translate -f -\n" +
			"  kubectl get sharedvolumes.aws-efs.managed.openshift.io --all-namespaces -o yaml | kubectl efs-stunnel translate -f -",
		RunE: func(*cobra.Command, []string) error {
			text, err := p.read(file)
			if err != nil {
				return err
			}
			out, err := translate.Translate(text, cmp.Or(p.provisioner, wellknown.DefaultProvisioner))
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			_, err = p.streams.Out.Write(out)
			return err
		},
	}
	command.Flags().StringVarP(&file, "filename", "f", "", "`file` with the objects, or a List of them; - for the standard input")
	_ = command.MarkFlagRequired("filename")
	return command
}
