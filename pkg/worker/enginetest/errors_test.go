package enginetest

import (
	"errors"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

func TestResultOfAnUnknownErrorHasItsMessage(t *testing.T) {
	result := fsroot.ResultOf(errors.New("no such mount"))
	if result.State != operations.Failed || result.Reason != operations.IOError || !strings.Contains(result.Message, "no such mount") {
		t.Errorf("got %+v", result)
	}
}
