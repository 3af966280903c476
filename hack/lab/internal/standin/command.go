package standin

import (
	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efscli"
)

// NewCommand makes the command tree `lab efs`. The path of the admin socket is
// asked for only when a command runs.
func NewCommand(socket func() (string, error)) *cobra.Command { return efscli.New(socket) }
