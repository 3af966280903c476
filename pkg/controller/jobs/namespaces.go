package jobs

import (
	"context"
	"maps"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// withNamespaceUIDs writes into operations that enter an owner the uid of its namespace, read live: a
// cached one could be that of an earlier namespace of the same name, whose data is not for this one.
//
//	namespace  its claim   what becomes of the operation
//	there      there       sent with the uid
//	gone       there       left out: the cache is behind, and the claim goes too
//	any        gone        sent as it was begun: what was begun is finished
func (c *Controller) withNamespaceUIDs(ctx context.Context, ops []operations.Operation) ([]operations.Operation, error) {
	names := map[string]bool{}
	for _, o := range ops {
		if c.needsNamespace(o) {
			names[o.Namespace] = true
		}
	}
	if len(names) == 0 {
		return ops, nil
	}
	namespaces, err := c.live.Namespaces(ctx, slices.Collect(maps.Keys(names)))
	if err != nil {
		return nil, err
	}
	var sealed []operations.Operation
	for _, o := range ops {
		if c.needsNamespace(o) {
			namespace := namespaces[o.Namespace]
			if namespace == nil {
				continue
			}
			o.NamespaceUID = string(namespace.UID)
		}
		sealed = append(sealed, o)
	}
	return sealed, nil
}

// needsNamespace says that an operation enters an owner whose claim is there.
func (c *Controller) needsNamespace(o operations.Operation) bool {
	return o.AddsOwner() && c.claimOf(o) != nil
}
