package cli

import (
	"fmt"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/images"
)

func (a *app) loadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load IMAGE.tar",
		Short: "Push the images of a `docker save` file to the lab's registry",
		Long: "Push the images of a `docker save` file (also made by buildah or podman with\n" +
			"docker-archive:) to the lab's registry, and print their names in pods.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := images.Load(args[0])
			if err != nil {
				return err
			}
			for _, name := range slices.Sorted(maps.Keys(loaded)) {
				if err := a.push(cmd, name, loaded[name]); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (a *app) push(cmd *cobra.Command, name string, image v1.Image) error {
	_, s, err := a.existing()
	if err != nil {
		return err
	}
	inCluster, err := images.Push(cmd.Context(), s.RegistryPort, name, image)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), inCluster)
	return err
}

func (a *app) imageCommand() *cobra.Command {
	var files []string
	var r images.Recipe
	build := &cobra.Command{
		Use:     "build REPOSITORY:TAG",
		Short:   "Build an image from files, push it, and print its name in pods",
		Example: "  lab image build efs-stunnel/manager:dev --add bin/manager:/manager --entrypoint /manager --user 65532",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, text := range files {
				f, err := images.ParseFile(text)
				if err != nil {
					return err
				}
				r.Files = append(r.Files, f)
			}
			image, err := images.Build(r)
			if err != nil {
				return err
			}
			return a.push(cmd, args[0], image)
		},
	}
	flags := build.Flags()
	flags.StringArrayVar(&files, "add", nil, "SOURCE:TARGET, a file or a folder's content; may be repeated")
	flags.StringArrayVar(&r.Entrypoint, "entrypoint", nil, "program and fixed arguments, one flag each")
	flags.StringArrayVar(&r.Command, "command", nil, "default arguments, one flag each")
	flags.StringArrayVar(&r.Env, "env", nil, "NAME=value; may be repeated")
	flags.StringVar(&r.User, "user", "", "user id that the image runs as (default root)")
	cmd := &cobra.Command{Use: "image", Short: "Build images for the lab's registry without a container engine"}
	cmd.AddCommand(build)
	return cmd
}
