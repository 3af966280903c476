package volumes

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Pattern is a path below the base path, with variables of the claim in it.
type Pattern struct {
	text  string
	parts []part
}

// part is either literal text or a variable; those of labels and annotations have a key.
type part struct {
	literal       string
	variable, key string
}

const (
	variableNamespace  = ".PVC.namespace"
	variableName       = ".PVC.name"
	variableUID        = ".PVC.uid"
	variableLabel      = ".PVC.labels."
	variableAnnotation = ".PVC.annotations."
	variableVolume     = ".PV.name"
	variableVolumeName = "volume_name"
)

const allowedVariables = "allowed are ${.PVC.namespace}, ${.PVC.name}, ${.PVC.uid}, ${.PVC.labels.KEY}, " +
	"${.PVC.annotations.KEY}, ${.PV.name}, ${volume_name}"

// defaultPattern is wellknown.DefaultPathPattern; a test holds the two together.
func defaultPattern() Pattern {
	return Pattern{
		text:  wellknown.DefaultPathPattern,
		parts: []part{{variable: variableNamespace}, {literal: "/"}, {variable: variableVolumeName}},
	}
}

// String is the pattern as it was written.
func (p Pattern) String() string { return p.text }

// ParsePattern reads a path_pattern. Braces and dollars outside of variables are errors: a
// mistyped variable would be one directory for all claims.
func ParsePattern(text string) (Pattern, error) {
	p := Pattern{text: text}
	for rest := text; rest != ""; {
		position := utf8.RuneCountInString(text[:len(text)-len(rest)]) + 1
		next, length, err := parsePart(rest)
		if err != nil {
			return Pattern{}, fmt.Errorf("at position %d: %w; %s", position, err, allowedVariables)
		}
		p.parts = append(p.parts, next)
		rest = rest[length:]
	}
	if err := p.checkLiterals(); err != nil {
		return Pattern{}, err
	}
	return p, nil
}

// parsePart reads what the text starts with, and says how long that is.
func parsePart(text string) (next part, length int, err error) {
	if name, ok := strings.CutPrefix(text, "${"); ok {
		name, _, closed := strings.Cut(name, "}")
		if !closed {
			return part{}, 0, fmt.Errorf(`"${" without "}"`)
		}
		next, err = parseVariable(name)
		return next, len("${") + len(name) + len("}"), err
	}
	length = strings.IndexAny(text, "${}")
	if length == 0 {
		return part{}, 0, fmt.Errorf("%q outside of a variable", text[:1])
	}
	if length < 0 {
		length = len(text)
	}
	return part{literal: text[:length]}, length, nil
}

func parseVariable(name string) (part, error) {
	unkeyed := []string{variableNamespace, variableName, variableUID, variableVolume, variableVolumeName}
	if slices.Contains(unkeyed, name) {
		return part{variable: name}, nil
	}
	for _, keyed := range []string{variableLabel, variableAnnotation} {
		key, ok := strings.CutPrefix(name, keyed)
		if !ok {
			continue
		}
		// Annotation keys may have capitals in the prefix, and are else as label keys are.
		if len(validation.IsQualifiedName(strings.ToLower(key))) > 0 {
			return part{}, fmt.Errorf("%s is not the key of a label or annotation", quoted(key))
		}
		return part{variable: keyed, key: key}, nil
	}
	return part{}, fmt.Errorf("there is no variable ${%s}", plain(name))
}

// checkLiterals finds what no claim could make right.
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

// expand puts the values of a claim into the pattern. What comes out is not checked yet.
func (p Pattern) expand(claim *corev1.PersistentVolumeClaim) (string, error) {
	var expanded strings.Builder
	for _, part := range p.parts {
		value, err := part.value(claim)
		if err != nil {
			return "", err
		}
		expanded.WriteString(value)
	}
	return expanded.String(), nil
}

// value refuses the empty string, because "team-" is nobody's directory, and separators,
// because the pattern alone says how deep a path is; only an annotation is a path itself.
func (p part) value(claim *corev1.PersistentVolumeClaim) (string, error) {
	if p.variable == "" {
		return p.literal, nil
	}
	value := p.lookUp(claim)
	if value == "" {
		return "", fmt.Errorf("%s is empty for this claim", p)
	}
	if p.variable != variableAnnotation && strings.Contains(value, "/") {
		return "", fmt.Errorf("%s is %s for this claim: it must be one component of a path", p, quoted(value))
	}
	return value, nil
}

func (p part) lookUp(claim *corev1.PersistentVolumeClaim) string {
	switch p.variable {
	case variableNamespace:
		return claim.Namespace
	case variableName:
		return claim.Name
	case variableUID:
		return string(claim.UID)
	case variableLabel:
		return claim.Labels[p.key]
	case variableAnnotation:
		return claim.Annotations[p.key]
	case variableVolume:
		return VolumeName(claim.UID)
	default:
		return directoryName(claim)
	}
}

// String is the variable as it is written in a pattern.
func (p part) String() string { return "${" + plain(p.variable+p.key) + "}" }
