package host

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestShortageIsAnErrorThatSaysWhatToDo(t *testing.T) {
	if err := enoughMemory(4096, 4096); err != nil {
		t.Errorf("just enough memory: %v", err)
	}
	if err := enoughMemory(4095, 4096); err == nil || !strings.Contains(err.Error(), "--node-memory") {
		t.Errorf("too little memory: %v", err)
	}
	if err := enoughDisk("/x", 3*gibibyte, 3); err != nil {
		t.Errorf("just enough disk: %v", err)
	}
	if err := enoughDisk("/x", 3*gibibyte-1, 3); err == nil || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("too little disk: %v", err)
	}
}

func TestMissingPackagesAreListedOnce(t *testing.T) {
	lookPath := func(program string) (string, error) {
		if strings.HasPrefix(program, "ssh") || program == "ip" {
			return "", errors.New("not found")
		}
		return "/usr/bin/" + program, nil
	}
	if got := missingPackages(programs(), lookPath); !slices.Equal(got, []string{"iproute2", "openssh-client"}) {
		t.Errorf("got %v", got)
	}
}

func TestErrorHasTheLastLinesOfTheOutput(t *testing.T) {
	err := Run(t.Context(), "sh", "-c", "for i in 1 2 3 4 5 6; do echo line $i; done; echo why >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "line 6; why") || strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v, want the last lines", err)
	}
}
