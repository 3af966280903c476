package volumes

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Pattern is a path below the base path, with variables of the claim in it.
type Pattern struct {
	text  string
	parts []part
}

// part is either literal text, or the name of a variable, with the key if it is that of a label or annotation.
type part struct{ literal, variable string }

const (
	variableLabel      = ".PVC.labels."
	variableAnnotation = ".PVC.annotations."
	variableUID        = ".PVC.uid"
	variableVolume     = ".PV.name" // has the uid
	variableName       = "volume_name"
)

// valueOf returns the value of a variable of a claim; ok is false if there is no such variable.
func valueOf(claim *corev1.PersistentVolumeClaim, variable string) (value string, ok bool) {
	if key, ok := strings.CutPrefix(variable, variableLabel); ok {
		return claim.Labels[key], true
	}
	if key, ok := strings.CutPrefix(variable, variableAnnotation); ok {
		return claim.Annotations[key], true
	}
	value, ok = map[string]string{
		".PVC.namespace": claim.Namespace, ".PVC.name": claim.Name, variableUID: string(claim.UID),
		variableVolume: VolumeName(claim.UID), variableName: directoryName(claim),
	}[variable]
	return value, ok
}

const allowedVariables = "allowed are ${.PVC.namespace}, ${.PVC.name}, ${.PVC.uid}, ${.PVC.labels.KEY}, " +
	"${.PVC.annotations.KEY}, ${.PV.name}, ${volume_name}"

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// ParsePattern parses a path_pattern. Braces and dollars outside of variables are errors: a
// mistyped variable would be one directory for all claims.
func ParsePattern(text string) (Pattern, error) {
	p := Pattern{text: text}
	for _, at := range tokens.FindAllStringIndex(text, -1) {
		next, err := parsePart(text[at[0]:at[1]])
		if err != nil {
			return Pattern{}, fmt.Errorf("at position %d: %w; %s", utf8.RuneCountInString(text[:at[0]])+1, err, allowedVariables)
		}
		p.parts = append(p.parts, next)
	}
	if err := p.checkLiterals(); err != nil {
		return Pattern{}, err
	}
	return p, nil
}

// tokens matches a variable, whose brace may be missing, literal text, and what is neither.
var tokens = regexp.MustCompile(`\$\{[^}]*\}?|[^${}]+|[${}]`)

func parsePart(token string) (part, error) {
	name, variable := strings.CutPrefix(token, "${")
	name, closed := strings.CutSuffix(name, "}")
	switch {
	case variable && closed:
		return parseVariable(name)
	case variable:
		return part{}, errors.New(`"${" without "}"`)
	case strings.ContainsAny(token, "${}"):
		return part{}, fmt.Errorf("%q outside of a variable", token)
	}
	return part{literal: token}, nil
}

func parseVariable(name string) (part, error) {
	key, hasKey := strings.CutPrefix(name, variableLabel)
	if !hasKey {
		key, hasKey = strings.CutPrefix(name, variableAnnotation)
	}
	// Annotation keys may have capitals in the prefix, and are else as label keys are.
	if hasKey && len(validation.IsQualifiedName(strings.ToLower(key))) > 0 {
		return part{}, fmt.Errorf("%s is not the key of a label or annotation", quoted(key))
	}
	if _, ok := valueOf(&corev1.PersistentVolumeClaim{}, name); !ok {
		return part{}, fmt.Errorf("there is no variable ${%s}", plain(name))
	}
	return part{variable: name}, nil
}

func (p Pattern) checkLiterals() error {
	var sample strings.Builder
	for _, part := range p.parts {
		if part.variable != "" {
			sample.WriteString("x")
		}
		sample.WriteString(part.literal)
	}
	return operations.CheckPath("/" + sample.String())
}

// expand puts the values of a claim into the pattern. The caller checks the path.
func (p Pattern) expand(claim *corev1.PersistentVolumeClaim) (string, error) {
	var expanded strings.Builder
	for _, part := range p.parts {
		value, err := part.expand(claim)
		if err != nil {
			return "", err
		}
		expanded.WriteString(value)
	}
	return expanded.String(), nil
}

// expand refuses the empty string, because all claims without a value would share "team-", and
// separators, because the pattern alone determines how deep a path is; only an annotation is a path.
func (p part) expand(claim *corev1.PersistentVolumeClaim) (string, error) {
	if p.variable == "" {
		return p.literal, nil
	}
	value, _ := valueOf(claim, p.variable)
	if value == "" {
		return "", fmt.Errorf("%s is empty for this claim", p)
	}
	if !strings.HasPrefix(p.variable, variableAnnotation) && strings.Contains(value, "/") {
		return "", fmt.Errorf("%s is %s for this claim: it must be one component of a path", p, quoted(value))
	}
	return value, nil
}

// String returns the variable as it is written in a pattern.
func (p part) String() string { return "${" + plain(p.variable) + "}" }

// VolumeName names the volume of a claim.
func VolumeName(claim types.UID) string { return wellknown.VolumePrefix + string(claim) }

// directoryName returns the value of the variable volume_name: the claim's label, else a name that no later claim can
// have, so that a new claim never gets the data of a deleted claim with the same name.
func directoryName(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := matchLabels(claim)[wellknown.LabelVolumeName]; ok {
		return name
	}
	return operations.Truncate(claim.Name, wellknown.MaxClaimNameBytes) + "-" + string(claim.UID)
}

// isUnique reports whether the claim's uid is part of its path, so that no later claim gets the path.
func (p Pattern) isUnique(claim *corev1.PersistentVolumeClaim) bool {
	_, named := matchLabels(claim)[wellknown.LabelVolumeName]
	return slices.ContainsFunc(p.parts, func(p part) bool {
		return p.variable == variableUID || p.variable == variableVolume || p.variable == variableName && !named
	})
}

// path returns the path of a claim's directory from the file system's root. CheckPath refuses "..", so the path is
// strictly below the base.
func (c Class) path(claim *corev1.PersistentVolumeClaim) (string, error) {
	below, err := c.Pattern.expand(claim)
	path := strings.TrimSuffix(c.BasePath, "/") + "/" + below
	if err == nil {
		err = operations.CheckPath(path)
	}
	if err != nil {
		return "", fmt.Errorf("path_pattern %s of storage class %s: %w", quoted(c.Pattern.text), quoted(c.Name), err)
	}
	return path, nil
}
