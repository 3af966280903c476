package chart

import (
	"fmt"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// replace puts values in place of the images, the service accounts and the namespace, wherever these are.
func (s Spec) replace(tree any, runbooks string) any {
	switch t := tree.(type) {
	case conditional:
		return conditional{t.when, s.replace(t.value, runbooks)}
	case []any:
		for i := range t {
			t[i] = s.replace(t[i], runbooks)
		}
	case map[string]any:
		for key := range t {
			t[key] = s.replace(t[key], runbooks)
		}
		replaceNames(t)
	case string:
		for value, name := range imageValues() {
			if image := s.Images[name]; image != "" && t == image {
				own := s.image(name)
				return verbatim(fmt.Sprintf("{{ include %q (dict %q .Values.images.%s %q %q %q %q) | quote }}",
					"efs-stunnel.image", "image", value, "tag", own.Tag, "digest", own.Digest))
			}
		}
		return strings.NewReplacer(
			"system:serviceaccount:efs-stunnel:efs-manager", "system:serviceaccount:"+namespaceToken+":"+managerToken,
			"system:serviceaccount:efs-stunnel:efs-stunnel", "system:serviceaccount:"+namespaceToken+":"+agentToken,
			runbooks, runbooksToken,
		).Replace(t)
	}
	return tree
}

// replaceNames replaces the names of namespace and service accounts in the fields of one object.
func replaceNames(object map[string]any) {
	accounts := map[any]string{"efs-manager": managerToken, "efs-stunnel": agentToken}
	if object["namespace"] == "efs-stunnel" {
		object["namespace"] = quoted(namespaceToken)
	}
	if token, ok := accounts[object["serviceAccountName"]]; ok {
		object["serviceAccountName"] = quoted(token)
	}
	metadata, ok := object["metadata"].(map[string]any)
	switch {
	case object["kind"] == "Namespace" && ok:
		metadata["name"] = quoted(namespaceToken)
	case object["kind"] == "ServiceAccount": // one, or the subject of a binding
		if !ok {
			metadata = object
		}
		if token, ok := accounts[metadata["name"]]; ok {
			metadata["name"] = quoted(token)
		}
	}
}

// quoted returns a token as a scalar of its own: a name may look like a number.
func quoted(token string) verbatim {
	return verbatim(strings.Replace(tokens.Replace(token), " }}", " | quote }}", 1))
}

// withAddresses replaces paths of pages, which users of the chart do not have.
func withAddresses(text string) string { return strings.ReplaceAll(text, "docs/", wellknown.DocsURL) }
