//go:build !linux

package probe

import (
	"context"
	"errors"
	"net"
)

type lister struct{}

// isHijacked is unknown where nodes do not run: only the kubectl plugin is built for other systems.
func isHijacked(context.Context, *lister, net.Conn) (bool, error) {
	return false, errors.ErrUnsupported
}
