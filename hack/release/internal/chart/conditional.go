package chart

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// conditional is a part of an object that is there only if a switch is on.
type conditional struct {
	when  string // an expression of Helm's templates
	value any
}

// verbatim is text of a template in place of a scalar.
type verbatim string

// repeated is an object for each item of a list of values.
type repeated struct {
	items  string // an expression of Helm's templates
	object map[string]any
}

// splice is a value whose items are appended to a list.
type splice string

// merge adds to a tree what a variant of the pristine object has in addition. A variant that changes or
// removes something is an error, because one switch would then decide about another's part.
func merge(tree, pristine, variant any, when string) (any, error) {
	switch p := pristine.(type) {
	case map[string]any:
		t, okTree := tree.(map[string]any)
		v, okVariant := variant.(map[string]any)
		if okTree && okVariant {
			return mergeMap(t, p, v, when)
		}
	case []any:
		t, okTree := tree.([]any)
		v, okVariant := variant.([]any)
		if okTree && okVariant {
			return mergeList(t, p, v, when)
		}
	}
	if !reflect.DeepEqual(pristine, variant) {
		return nil, fmt.Errorf("%v becomes %v: a component may only add", pristine, variant)
	}
	return tree, nil
}

func mergeMap(tree, pristine, variant map[string]any, when string) (any, error) {
	merged := maps.Clone(tree)
	for key := range pristine {
		if _, ok := variant[key]; !ok {
			return nil, fmt.Errorf("%s is removed: a component may only add", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(variant)) {
		old, ok := pristine[key]
		if !ok {
			if _, taken := tree[key]; taken {
				return nil, fmt.Errorf("%s is added by two components", key)
			}
			merged[key] = conditional{when, variant[key]}
			continue
		}
		value, err := merge(tree[key], old, variant[key], when)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		merged[key] = value
	}
	return merged, nil
}

// mergeList expects the pristine items in the variant, in their order, and others before, between or
// after them.
func mergeList(tree, pristine, variant []any, when string) (any, error) {
	var merged []any
	rest, next := tree, 0 // next is that of pristine and rest begins with its item, after those of others
	for _, item := range variant {
		if next == len(pristine) || !same(pristine[next], item) {
			if next == len(pristine) { // what other components have added comes first, as in kustomize
				merged, rest = append(merged, rest...), nil
			}
			merged = append(merged, conditional{when, item})
			continue
		}
		for {
			first := rest[0]
			rest = rest[1:]
			if _, ok := first.(conditional); ok {
				merged = append(merged, first)
				continue
			}
			value, err := merge(first, pristine[next], item, when)
			if err != nil {
				return nil, err
			}
			merged = append(merged, value)
			break
		}
		next++
	}
	if next < len(pristine) {
		return nil, fmt.Errorf("item %v is removed: a component may only add", pristine[next])
	}
	return append(merged, rest...), nil
}

// same reports whether one item of a list becomes the other: items with names by their name.
func same(a, b any) bool {
	left, okLeft := a.(map[string]any)
	right, okRight := b.(map[string]any)
	if okLeft && okRight && left["name"] != nil {
		return left["name"] == right["name"]
	}
	return reflect.DeepEqual(a, b)
}
