package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gnuthought.com/efs-stunnel/hack/release/internal/archive"
	"gnuthought.com/efs-stunnel/hack/release/internal/debian"
	"gnuthought.com/efs-stunnel/hack/release/internal/images"
	"gnuthought.com/efs-stunnel/hack/release/internal/licenses"
)

// image is one of the images. A test compares them with hack/images/Dockerfile.
type image struct {
	name     string
	user     string
	programs []string // the first one is the entrypoint
	system   func(root debian.Root, triplet string) ([]debian.File, error)
}

func allImages() []image {
	return []image{
		{"efs-manager", "65532:65532", []string{"manager"}, certificates},
		{"efs-stunnel", "20490:20490", []string{"nodeagent", "nodeagent-readahead", "nodeagent-supervise"}, stunnel},
		{"efs-worker", "65532:65532", []string{"mountjob"}, nil},
		{"efs-stunnel-nfsserver", "0:0", []string{"nfsserver"}, nfsServer},
	}
}

// imageArchitectures returns names that are Go's and Debian's.
func imageArchitectures() []string { return []string{"amd64", "arm64"} }

// debianPackages returns the packages from which hack/images/collect takes files.
func debianPackages() []string {
	return []string{"base-files", "ca-certificates", "libgcc-s1", "nfs-ganesha", "nfs-ganesha-vfs", "stunnel4"}
}

const authorities = "/usr/share/ca-certificates/mozilla/"

// certificates returns the public certificate authorities, for the manager's calls of AWS.
func certificates(root debian.Root, _ string) ([]debian.File, error) {
	release, err := root.Read("/etc/os-release")
	if err != nil {
		return nil, err
	}
	names, err := root.Names(authorities, ".crt")
	if err != nil {
		return nil, err
	}
	all, err := bundle(root, "/etc/ssl/certs/ca-certificates.crt", names...)
	return []debian.File{release, all}, err
}

// stunnelProgram returns the program with the libraries that it loads, and the name of the release.
func stunnelProgram(root debian.Root, triplet string) ([]debian.File, error) {
	release, err := root.Read("/etc/os-release")
	if err != nil {
		return nil, err
	}
	// libgcc is loaded when a thread ends, so the program does not name it.
	files, err := root.Program("/usr/bin/stunnel4", triplet, "libgcc_s.so.1")
	if err != nil {
		return nil, err
	}
	files[0].Path = "/usr/local/bin/stunnel"
	return append(files, release), nil
}

// nfsServer returns stunnel and NFS-Ganesha with the libraries that they load.
func nfsServer(root debian.Root, triplet string) ([]debian.File, error) {
	files, err := stunnelProgram(root, triplet)
	if err != nil {
		return nil, err
	}
	// Ganesha loads the plugin for local file systems itself, so the program does not name it.
	ganesha, err := root.Program("/usr/bin/ganesha.nfsd", triplet, "libfsalvfs.so")
	if err != nil {
		return nil, err
	}
	for _, file := range ganesha {
		if !slices.ContainsFunc(files, func(f debian.File) bool { return f.Path == file.Path }) {
			files = append(files, file)
		}
	}
	protocols, err := root.Read("/etc/netconfig") // without which Ganesha does not start
	if err != nil {
		return nil, err
	}
	// Where Ganesha looks for file systems, and where it tests at its start whether the kernel has locks of open files.
	base := files[0].Package
	return append(files, protocols, debian.File{Path: "/etc/mtab", Link: "/proc/mounts", Package: base},
		debian.File{Path: "/tmp", Link: "/run/efs-stunnel", Package: base}), nil
}

// stunnel returns stunnel's program, and the authorities of EFS's certificates.
func stunnel(root debian.Root, triplet string) ([]debian.File, error) {
	files, err := stunnelProgram(root, triplet)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range []string{
		"Amazon_Root_CA_1", "Amazon_Root_CA_2", "Amazon_Root_CA_3", "Amazon_Root_CA_4",
		"Starfield_Services_Root_Certificate_Authority_-_G2",
	} {
		names = append(names, authorities+name+".crt")
	}
	amazon, err := bundle(root, "/etc/efs-stunnel/amazon-roots.pem", names...)
	return append(files, amazon), err
}

// bundle returns a file with the certificates of others.
func bundle(root debian.Root, path string, names ...string) (debian.File, error) {
	file := debian.File{Path: path}
	for _, name := range names {
		one, err := root.Read(name)
		if err != nil {
			return debian.File{}, err
		}
		file.Data = append(append(file.Data, bytes.TrimSpace(one.Data)...), '\n')
		file.Package = one.Package
	}
	return file, nil
}

// layers returns the layers of an image for one architecture, and the packages of Debian in it.
func (i image) layers(s source, root debian.Root, programs, architecture string) ([][]archive.File, []debian.Package, error) {
	var layers [][]archive.File
	var packages []debian.Package
	if i.system != nil {
		triplet, err := debian.Triplet(architecture)
		if err != nil {
			return nil, nil, err
		}
		files, err := i.system(root, triplet)
		if err != nil {
			return nil, nil, fmt.Errorf("image %s: %w", i.name, err)
		}
		packages = owners(files)
		layers = append(layers, systemLayer(files, packages))
	}
	var files []string
	for _, program := range i.programs {
		files = append(files, filepath.Join(programs, program))
	}
	own, err := s.withLicenses("licenses/", files...)
	if err != nil {
		return nil, nil, fmt.Errorf("image %s: %w", i.name, err)
	}
	for n, program := range i.programs {
		data, err := os.ReadFile(files[n])
		if err != nil {
			return nil, nil, fmt.Errorf("image %s: %w", i.name, err)
		}
		own = append(own, archive.File{Name: "usr/local/bin/" + program, Data: data, Executable: true})
	}
	return append(layers, own), packages, nil
}

// withLicenses returns the license of the product and those of the modules that the programs contain.
func (s source) withLicenses(folder string, programs ...string) ([]archive.File, error) {
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return nil, fmt.Errorf("reading license: %w", err)
	}
	modules, err := s.licenses.Of(programs...)
	if err != nil {
		return nil, err
	}
	return []archive.File{
		{Name: folder + "LICENSE", Data: license},
		{Name: folder + "third-party-licenses.txt", Data: licenses.Text(modules)},
	}, nil
}

// owners returns the packages of the files, sorted.
func owners(files []debian.File) []debian.Package {
	var packages []debian.Package
	for _, f := range files {
		packages = append(packages, f.Package)
	}
	slices.SortFunc(packages, func(a, b debian.Package) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Compact(packages)
}

// systemLayer returns Debian's files, and an entry for each package, which vulnerability scanners read.
func systemLayer(files []debian.File, packages []debian.Package) []archive.File {
	var layer []archive.File
	for _, f := range files {
		layer = append(layer, archive.File{Name: f.Path[1:], Link: f.Link, Data: f.Data, Executable: f.Executable})
	}
	for _, p := range packages {
		layer = append(layer, archive.File{Name: "var/lib/dpkg/status.d/" + p.Name, Data: []byte(p.Control)})
	}
	return layer
}

// built is an image of the release.
type built struct {
	image
	reference string // with the digest
	packages  map[string][]debian.Package
	programs  map[string]string // the folder of the programs
}

// buildImages writes the images, and returns what they contain.
func buildImages(ctx context.Context, o options, s source, architectures ...string) ([]built, error) {
	roots, programs := map[string]debian.Root{}, map[string]string{}
	for _, architecture := range architectures {
		var names []string
		for _, i := range allImages() {
			names = append(names, i.programs...)
		}
		folder, err := build(ctx, o, platform{"linux", architecture}, names...)
		if err != nil {
			return nil, err
		}
		programs[architecture] = folder
		packages, err := debian.Fetch(ctx, filepath.Join(o.work, "debian", architecture), architecture, debianPackages()...)
		if err != nil {
			return nil, err
		}
		roots[architecture] = packages
	}
	var all []built
	for _, i := range allImages() {
		b := built{image: i, packages: map[string][]debian.Package{}, programs: programs}
		r := images.Recipe{
			Layers: map[string][][]archive.File{}, User: i.user, Entrypoint: "/usr/local/bin/" + i.programs[0], Time: s.time,
			Labels: map[string]string{
				"org.opencontainers.image.title": i.name, "org.opencontainers.image.version": o.version,
				"org.opencontainers.image.revision": s.revision, "org.opencontainers.image.licenses": "Apache-2.0",
			},
		}
		for _, architecture := range architectures {
			var err error
			r.Layers[architecture], b.packages[architecture], err = i.layers(s, roots[architecture], programs[architecture], architecture)
			if err != nil {
				return nil, err
			}
		}
		index, err := images.Build(r, architectures)
		if err != nil {
			return nil, err
		}
		digest, err := index.Digest()
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", i.name, err)
		}
		b.reference = o.registry + "/" + i.name + "@" + digest.String()
		if err := images.Write(i.file(o), index, o.version, s.time); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// file returns the path of the image's file.
func (i image) file(o options) string {
	return filepath.Join(o.out, i.name+"-"+o.number()+".oci.tar")
}

func pushImages(ctx context.Context, o options) error {
	for _, i := range allImages() {
		pushed, err := images.Push(ctx, i.file(o), o.registry+"/"+i.name, o.version)
		if err != nil {
			return err
		}
		fmt.Println(pushed)
	}
	return nil
}
