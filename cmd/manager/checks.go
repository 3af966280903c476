package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/manager/sharedvolumes"
)

// The errors of the checks say what is allowed; package settings adds setting and value.

func checkPathNamespace(name string) error {
	if name != sharedvolumes.AnyNamespace && client.CheckNamespace(name) != nil {
		return errors.New(`want names of namespaces, with commas between, or *`)
	}
	return nil
}

// checkProvisioner requires what the apiserver requires of a StorageClass's provisioner, and that the name
// is not Kubernetes' own.
func checkProvisioner(name string) error {
	domain, _, qualified := strings.Cut(name, "/")
	if !qualified || len(validation.IsQualifiedName(strings.ToLower(name))) > 0 {
		return errors.New(`want a domain, "/", and 1 to 63 letters, digits, "-", "_" or ".", as ` + wellknown.DefaultProvisioner)
	}
	if domain == wellknown.KubernetesDomain || strings.HasSuffix(domain, "."+wellknown.KubernetesDomain) {
		return fmt.Errorf("want a name that is not below %s, or the cluster takes its volumes for its own", wellknown.KubernetesDomain)
	}
	return nil
}

// checkImage leaves other mistakes to the container runtime.
func checkImage(image string) error {
	if image == "" || strings.ContainsAny(image, " \t\r\n") {
		return errors.New("want the name of an image, without spaces")
	}
	return nil
}

var vpc = regexp.MustCompile(`^vpc-[0-9a-z]{1,40}$`)

func checkVPC(id string) error {
	if !vpc.MatchString(id) {
		return errors.New("want vpc- and 1 to 40 lower-case letters or digits")
	}
	return nil
}

// parseAliases parses fs-new=fs-old,…; a copy of a copy is allowed.
func parseAliases(text string) (map[string][]string, error) {
	aliases := map[string][]string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		fresh, old, ok := strings.Cut(item, "=")
		switch _, twice := aliases[fresh]; {
		case !ok:
			return nil, fmt.Errorf("%q is no alias: want fs-new=fs-old", item)
		case efs.CheckFileSystemID(fresh) != nil:
			return nil, efs.CheckFileSystemID(fresh)
		case efs.CheckFileSystemID(old) != nil:
			return nil, efs.CheckFileSystemID(old)
		case fresh == old:
			return nil, fmt.Errorf("%q: want two file systems, as none is a copy of itself", item)
		case twice:
			return nil, fmt.Errorf("%q is the second alias of %s: want one, as it is the copy of one file system", item, fresh)
		}
		aliases[fresh] = []string{old}
	}
	return aliases, nil
}
