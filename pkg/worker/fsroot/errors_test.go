package fsroot

import (
	"errors"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

func TestResultOfAnUnknownErrorHasItsMessage(t *testing.T) {
	result := ResultOf(errors.New("no such mount"))
	if result.State != operations.Failed || result.Reason != operations.IOError || !strings.Contains(result.Message, "no such mount") {
		t.Errorf("got %+v", result)
	}
}
